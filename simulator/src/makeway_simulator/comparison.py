"""Two policies on one workload: the same figures side by side."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from makeway_policy.rules import Policy

from makeway_simulator.engine import Engine
from makeway_simulator.outcome import EndKind, summarise, waits_by_class
from makeway_simulator.physics import Physics
from makeway_simulator.rivals import study as rivals_study
from makeway_simulator.rivals.loop import Charge
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What is compared: names with their rules (None: a rival of that name)."""

    trace: Trace
    cluster: Cluster
    physics: Physics
    policies: tuple[tuple[str, Policy | None], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One figure under both policies, counts whole; the change in per cent of the first, None where that is 0."""

    name: str
    first: float
    second: float

    @property
    def change_percent(self) -> float | None:
        """From the first to the second."""
        return None if not self.first else 100 * (self.second - self.first) / self.first


def compare_policies(comparison: Comparison, progress: Callable[[int, int], None] | None = None) -> list[Difference]:
    """Replay under both; the two figures of each name, P95 waits per class last. Raises UnknownChoice."""
    total = len(comparison.trace.jobs)
    told = None if progress is None else lambda done: progress(done, total)
    policies = comparison.policies * (2 if len(comparison.policies) == 1 else 1)
    first, second = (_figures(comparison, name, rules, told) for name, rules in policies)
    names = [*first, *(name for name in second if name not in first)]
    return [Difference(name=name, first=first.get(name, 0), second=second.get(name, 0)) for name in names]


def _figures(
    comparison: Comparison, name: str, rules: Policy | None, told: Callable[[int], None] | None
) -> dict[str, float]:
    cluster = comparison.cluster
    if rules is None:
        charge = Charge(restart_seconds=comparison.physics.restore_seconds)
        record = rivals_study.study(comparison.trace, cluster, name, charge, told)
    else:
        setting = Setting(cluster=cluster, policy=rules, physics=comparison.physics)
        record = Engine(comparison.trace.jobs, setting).run(told)
    finished = [each for each in record.outcomes if each.kind is EndKind.FINISHED]
    waits = waits_by_class(record.outcomes)
    figures = asdict(summarise(finished, cluster.gpus, record.refused))
    return {**figures, **{f"p95_wait_seconds.{name}": found["p95_seconds"] for name, found in waits.items()}}
