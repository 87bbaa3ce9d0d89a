"""The strategies side by side on one small workload that a newcomer can follow.

Four GPUs, long training of low and normal class, and urgent work that arrives in between. Each strategy is the same
policy with another preemption mode and grace; `runs` gives one run a combination of what can be changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Final, TypeVar

from makeway_policy.model import Mode
from makeway_policy.presets import PLAIN
from makeway_policy.rules import Policy

from makeway_simulator.engine import Engine
from makeway_simulator.outcome import EndKind
from makeway_simulator.physics import Physics
from makeway_simulator.record import Record
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster, TraceJob

Value = TypeVar("Value")

LOST: Final = (
    "GPU-seconds lost are held by jobs but brought none on: starts, saves, and work done again or for nothing."
)
"""What a column of the table means: jobs that nobody evicts save too, and so lose some."""

CLUSTER: Final = Cluster(nodes=1, gpus_per_node=4)
SAVE_SECONDS: Final = 10.0
STOP_SECONDS: Final = 3.0
RESTORE_SECONDS: Final = 10.0
JOBS: Final = (
    TraceJob(job_id="train-a", submitted_at=0, gpus=2, work_seconds=600, class_name="normal"),
    TraceJob(job_id="train-b", submitted_at=0, gpus=1, work_seconds=500, class_name="low"),
    TraceJob(job_id="train-c", submitted_at=0, gpus=1, work_seconds=420, class_name="low"),
    TraceJob(job_id="train-d", submitted_at=60, gpus=1, work_seconds=300, class_name="low"),
    TraceJob(job_id="serve-1", submitted_at=125, gpus=2, work_seconds=90, class_name="urgent"),
    TraceJob(job_id="build", submitted_at=260, gpus=1, work_seconds=60, class_name="high"),
    TraceJob(job_id="serve-2", submitted_at=395, gpus=4, work_seconds=60, class_name="urgent"),
    TraceJob(job_id="hot-fix", submitted_at=560, gpus=2, work_seconds=80, class_name="high"),
)
"""The workload; a class is what the jobs' names suggest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What can be changed: mode OFF is no preemption; an interval or an SLA wait of None is none. Seconds."""

    mode: Mode = Mode.CHECKPOINT
    grace_seconds: float = 30.0
    interval_seconds: float | None = 120.0
    delta: int = 10
    sla_wait_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoRun:
    """One run of the workload."""

    choice: Choice
    record: Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What a strategy cost and gained. Waits are of urgent and high jobs, in seconds."""

    strategy: str
    mean_wait_seconds: float
    longest_wait_seconds: float
    training_done_at: float
    lost_gpu_seconds: float
    preemptions: int
    cancelled: int


STRATEGIES: Final[Mapping[str, tuple[Mode, bool]]] = MappingProxyType(
    {
        "no preemption": (Mode.OFF, True),
        "CANCEL, grace 0": (Mode.CANCEL, False),
        "CANCEL, graceful": (Mode.CANCEL, True),
        "REQUEUE, grace 0": (Mode.REQUEUE, False),
        "REQUEUE, graceful": (Mode.REQUEUE, True),
        "CHECKPOINT, grace 0": (Mode.CHECKPOINT, False),
        "CHECKPOINT, graceful": (Mode.CHECKPOINT, True),
    }
)
"""Name, then mode and whether the chosen grace is given."""


def run_one(choice: Choice) -> DemoRun:
    """Run the workload once."""
    physics = Physics(
        checkpoint_interval_seconds=choice.interval_seconds,
        save_seconds=SAVE_SECONDS,
        stop_seconds=STOP_SECONDS,
        restore_seconds=RESTORE_SECONDS,
        grace_seconds=choice.grace_seconds,
        mode=None if choice.mode is Mode.OFF else choice.mode,
    )
    setting = Setting(cluster=CLUSTER, policy=policy_of(choice), physics=physics)
    return DemoRun(choice=choice, record=Engine(JOBS, setting).run())


def policy_of(choice: Choice) -> Policy:
    """Strict priority with the chosen Δ; low and normal jobs age after the chosen wait."""
    classes = {
        name: replace(rules, sla_wait_seconds=choice.sla_wait_seconds if name in ("low", "normal") else None)
        for name, rules in PLAIN.classes.items()
    }
    return replace(PLAIN, delta=choice.delta, preemption=choice.mode is not Mode.OFF, classes=MappingProxyType(classes))


def table(choice: Choice) -> list[Row]:
    """One row a strategy; `choice` gives everything but mode and grace 0."""
    return [
        row(name, run_one(replace(choice, mode=mode, grace_seconds=choice.grace_seconds if graceful else 0.0)).record)
        for name, (mode, graceful) in STRATEGIES.items()
    ]


def row(strategy: str, record: Record) -> Row:
    """The figures of one run."""
    hurried = [each for each in record.outcomes if each.class_name in ("urgent", "high")]
    training = [each for each in record.outcomes if each not in hurried]
    waits = [each.waited_seconds for each in hurried]
    finished = [each for each in training if each.kind is EndKind.FINISHED]
    return Row(
        strategy=strategy,
        mean_wait_seconds=sum(waits) / len(waits) if waits else 0.0,
        longest_wait_seconds=max(waits, default=0.0),
        training_done_at=max((each.finished_at for each in finished), default=0.0),
        lost_gpu_seconds=sum(each.lost_gpu_seconds for each in record.outcomes),
        preemptions=len(record.preemptions),
        cancelled=sum(1 for each in record.outcomes if each.kind is EndKind.CANCELLED),
    )


def as_figures(row: Row) -> dict[str, float | int | str]:
    """The row by name."""
    return asdict(row)


def runs(choice: Choice) -> Iterator[DemoRun]:
    """The runs that the page carries: every mode with the chosen values and what they are best seen against."""
    graces = _with(choice.grace_seconds, 0.0, 30.0)
    intervals = _with(choice.interval_seconds, None, 60.0, 120.0)
    deltas = _with(choice.delta, 10, 500)
    waits = _with(choice.sla_wait_seconds, None, 60.0)
    modes = (Mode.OFF, Mode.CANCEL, Mode.REQUEUE, Mode.CHECKPOINT)
    for mode, grace, interval, delta, wait in product(modes, graces, intervals, deltas, waits):
        yield run_one(
            Choice(mode=mode, grace_seconds=grace, interval_seconds=interval, delta=delta, sla_wait_seconds=wait)
        )


def _with(chosen: Value, *others: Value) -> Sequence[Value]:
    return tuple(dict.fromkeys((chosen, *others)))
