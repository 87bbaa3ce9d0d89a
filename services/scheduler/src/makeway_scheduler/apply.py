"""One apply function a kind of fact."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from makeway_schemas.facts import Fact, PolicyApplied

from makeway_scheduler import apply_commands, apply_ends, apply_jobs, apply_nodes, apply_runs, emptying
from makeway_scheduler.ledger import Ledger


def _leave_to_the_cycle(_ledger: Ledger, _fact: PolicyApplied, _now: float) -> None:
    """The policy itself is in the database; the cycle has read it before the batch of this fact."""


_OF_KIND: Final[Mapping[str, Callable[[Ledger, Any, float], None]]] = MappingProxyType(
    {
        "job_admitted": apply_jobs.apply_job_admitted,
        "command_issued": apply_commands.apply_command_issued,
        "node_command_issued": apply_commands.apply_node_command_issued,
        "policy_applied": _leave_to_the_cycle,
        "run_started": apply_runs.apply_run_started,
        "notice_delivered": apply_runs.apply_notice_delivered,
        "checkpoint_acked": apply_runs.apply_checkpoint_acked,
        "run_resumed": apply_runs.apply_run_resumed,
        "run_exited": apply_ends.apply_run_exited,
        "gpu_empty": emptying.apply_gpu_empty,
        "node_report": apply_nodes.apply_node_report,
        "gpu_health_changed": apply_nodes.apply_gpu_health_changed,
    }
)


def apply(ledger: Ledger, fact: Fact, now: float) -> None:
    """Apply a fact to the ledger at the database's time ``now``."""
    _OF_KIND[fact.kind](ledger, fact, now)
