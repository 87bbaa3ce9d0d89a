"""When a preemptor may count on GPUs that are being freed anyway: once they are empty no later than victims would be.

Until then it takes nobody beside them and waits. So time alone has it choose, at a moment that no change tells.
"""

from collections.abc import Iterator

from makeway_policy import costs
from makeway_policy.model import Run
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

_ROUNDING = 1e-6
"""By then the sum of a moment and a grace is not before the end that it was taken from."""


def next_opening(state: PoolState, policy: Policy, room: NodeRoom, now: float) -> float | None:
    """When next a run that leaves the node leaves no later than a victim might; None where nobody waits for that.

    How long victims take is taken from the node's runs and from all classes: of a gang they may be on other nodes.
    """
    ends = {end for run_id in _awaited(room) if (end := _leaves_at(state.runs[run_id])) is not None}
    if not ends:
        return None
    graces = {0.0, *(rules.grace_seconds for rules in policy.classes.values())}
    graces.update(costs.grace_of(state.jobs[run.job_id], policy) for card in room.cards for run in card.runs)
    return min((at for end in ends for grace in graces if (at := end - grace + _ROUNDING) > now), default=None)


def _awaited(room: NodeRoom) -> Iterator[str]:
    """Runs that leave cards on which there will be room; who takes a hold waits for those who leave for that."""
    for card in room.cards:
        if card.leaving and card.slots_later > 0:
            yield from card.leaving


def _leaves_at(run: Run) -> float | None:
    if run.leaves_by is not None or run.noticed_at is None:
        return run.leaves_by
    return run.noticed_at + run.grace_seconds
