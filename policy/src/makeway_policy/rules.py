"""The policy's configuration as values: one `Policy` drives the live scheduler and the simulator.

A loader maps a file on these fields one to one (names here are names there) and then calls `problems`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from makeway_policy.model import Mode, Overdue


class MayPreempt(StrEnum):
    """Whether jobs of a class may evict others."""

    YES = "yes"
    ONCE_AGED = "once_aged"
    NEVER = "never"


class Strategy(StrEnum):
    """How nodes are scored: fullest first, emptiest first, least growth of fragmentation."""

    BINPACK = "binpack"
    SPREAD = "spread"
    FRAG = "frag"


class Order(StrEnum):
    """What follows the queue value in the queue's order; AUTO is FAIR once any team's weight is not 1, else SUBMIT."""

    AUTO = "auto"
    SUBMIT = "submit"
    FAIR = "fair"


class Backfill(StrEnum):
    """Whether jobs behind a reservation may use its GPUs meanwhile."""

    STRICT = "strict"
    OFF = "off"
    PREEMPTIBLE = "preemptible"


class VictimOrder(StrEnum):
    """How candidate sets compare: highest victim first, cost first, or a weighted sum."""

    PRIORITY_FIRST = "priority-first"
    COST_FIRST = "cost-first"
    WEIGHTED = "weighted"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobClass:
    """A named priority with its rules; what a new class does not name is as in `normal`. Durations in seconds."""

    name: str
    alias: str | None = None
    value: int = 500
    own_value_min: int = 300
    own_value_max: int = 680
    may_preempt: MayPreempt = MayPreempt.YES
    mode: Mode = Mode.CHECKPOINT
    grace_seconds: float = 120.0
    grace_max_seconds: float | None = 1800.0
    minimum_run_seconds: float = 600.0
    cool_down_seconds: float | None = None
    overrides_minimum_run: bool = False
    preemptions_per_day: int | None = 4
    sla_wait_seconds: float | None = 7200.0
    placement: Strategy = Strategy.BINPACK
    restart_seconds: float = 30.0
    time_limit_max_seconds: float | None = None
    needs_allowance: bool = False

    @property
    def cool_down(self) -> float:
        """Seconds of protection after a preemption, from the next start: twice the minimum run where not set."""
        return 2 * self.minimum_run_seconds if self.cool_down_seconds is None else self.cool_down_seconds


URGENT = JobClass(
    name="urgent", alias="P0", value=1000, own_value_min=900, own_value_max=1000, mode=Mode.OFF,
    grace_seconds=30.0, grace_max_seconds=300.0, minimum_run_seconds=0.0, overrides_minimum_run=True,
    preemptions_per_day=None, sla_wait_seconds=5.0, placement=Strategy.SPREAD, needs_allowance=True,
)  # fmt: skip
HIGH = JobClass(
    name="high", alias="P1", value=800, own_value_min=700, own_value_max=880, mode=Mode.REQUEUE,
    grace_seconds=30.0, grace_max_seconds=300.0, minimum_run_seconds=60.0,
    preemptions_per_day=2, sla_wait_seconds=60.0, placement=Strategy.SPREAD, needs_allowance=True,
)  # fmt: skip
NORMAL = JobClass(name="normal", alias="P2")
LOW = JobClass(
    name="low", alias="P3", value=200, own_value_min=0, own_value_max=280, may_preempt=MayPreempt.ONCE_AGED,
    mode=Mode.REQUEUE, grace_seconds=10.0, grace_max_seconds=600.0, minimum_run_seconds=0.0,
    preemptions_per_day=10, sla_wait_seconds=28800.0,
)  # fmt: skip


def _default_classes() -> Mapping[str, JobClass]:
    return MappingProxyType({each.name: each for each in (URGENT, HIGH, NORMAL, LOW)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Everything that can be configured, with the defaults of docs/policy.md.

    `move_holds`: a holder starts on other free GPUs as soon as they suffice (nodes must know how to withdraw a start).
    `recheck_seconds`: so often every waiting job is judged anew, whatever woke it before; a safety net, not the means.
    """

    name: str = "default"
    classes: Mapping[str, JobClass] = field(default_factory=_default_classes)
    default_class: str = "normal"
    delta: int = 10
    aging_cap: int = 899
    aging_points: float = 300.0
    aging_step: int = 10
    promoted_minimum_run_seconds: float = 1800.0
    override_after_budget_seconds: float = 1800.0
    order: Order = Order.AUTO
    priorities: bool = True
    preemption: bool = True
    victims: VictimOrder = VictimOrder.PRIORITY_FIRST
    victim_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"v": 1.0, "cost": 1.0}))
    progress_weight: float = 1.0
    backfill: Backfill = Backfill.STRICT
    empty_seconds: float = 2.0
    hold_expiry_seconds: float = 30.0
    start_timeout_seconds: float = 120.0
    backing_off_seconds: float = 60.0
    move_holds: bool = True
    recheck_seconds: float = 60.0
    gpu_aliases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    max_shares: int = 4
    usage_half_life_seconds: float | None = None
    overdue_max_wait: Overdue = Overdue.CANCEL
    overdue_deadline: Overdue = Overdue.DEGRADE
    retry_backoff_max_seconds: float = 3600.0
    infrastructure_failures_max: int = 10
