"""Every topic: its key, its messages, its partitions and how long it is kept. There is no other list.

Any service that meets an unknown topic creates it again from here (Kafka is the transport, PostgreSQL the truth).
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from zlib import crc32

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic as every service creates it; ``config`` are Kafka's own topic settings."""

    name: str
    key: str
    partitions: int
    config: MappingProxyType[str, str]

    def partition_of(self, key: str) -> int:
        """The partition of a key. Our own rule, so that every client of any language agrees: CRC-32 modulo."""
        return crc32(key.encode()) % self.partitions


def _spec(name: str, *, key: str, partitions: int, retention_ms: int, **config: str) -> TopicSpec:
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "segment.bytes": str(64 * 1024 * 1024),
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    return TopicSpec(name=name, key=key, partitions=partitions, config=MappingProxyType(settings))


SCHEDULER_INBOX: Final = _spec("scheduler.inbox", key="pool", partitions=4, retention_ms=_DAY_MS)
"""Facts for the owner of a pool (``facts.FactBatch``); a pool's key has one partition."""

NODE_PLANS: Final = _spec("node.plans", key="node", partitions=4, retention_ms=_DAY_MS, cleanup_policy="compact")
"""The desired state of a node (``plans.NodePlan``); a node reads its one partition from the end."""

JOB_EVENTS: Final = _spec("job.events", key="job", partitions=4, retention_ms=7 * _DAY_MS)
"""The history of jobs for users, the console and admission (``events.JobEvent``)."""

GPU_SAMPLES: Final = _spec("gpu.samples", key="node", partitions=2, retention_ms=_HOUR_MS)
"""Readings of a node's GPUs (``samples.GpuSamples``)."""

DEAD_LETTERS: Final = _spec("dead.letters", key="topic", partitions=1, retention_ms=30 * _DAY_MS)
"""Messages that could not be read or applied, as they came, with the reason in the headers."""

ALL: Final = (SCHEDULER_INBOX, NODE_PLANS, JOB_EVENTS, GPU_SAMPLES, DEAD_LETTERS)
BY_NAME: Final = MappingProxyType({topic.name: topic for topic in ALL})
