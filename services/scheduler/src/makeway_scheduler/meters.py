"""The scheduler's Prometheus series."""

from typing import Final

from makeway_runtime.metrics import REGISTRY
from prometheus_client import Counter, Gauge, Histogram

_FAST: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)

BATCHES = Counter("makeway_scheduler_batches", "Batches committed.", registry=REGISTRY)
CHOICES = Counter("makeway_scheduler_choices", "What was chosen.", ["choice"], registry=REGISTRY)
CONFLICTS = Counter(
    "makeway_scheduler_conflicts", "Batches that the database did not take.", ["reason"], registry=REGISTRY
)
DEAD_FACTS = Counter("makeway_scheduler_dead_facts", "Facts set aside as dead letters.", registry=REGISTRY)
DECIDE_SECONDS = Histogram(
    "makeway_scheduler_decide_seconds", "One call of decide().", buckets=_FAST, registry=REGISTRY
)
COMMIT_SECONDS = Histogram("makeway_scheduler_commit_seconds", "One commit.", buckets=_FAST, registry=REGISTRY)
OWNER = Gauge("makeway_scheduler_owner", "1 while this process owns its pool.", registry=REGISTRY)
