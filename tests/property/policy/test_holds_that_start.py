"""Holds that had started before the word came to move them go on: nobody gets leases beside them, nobody is late."""

from collections import Counter

import pytest
from makeway_policy import lifecycle
from makeway_policy.model import LeaseState
from makeway_policy.state import PoolState
from policy_history import History

STEPS = 80
SEEDS = 40


class Hasty(History):
    """A history in which such holds often start all the same."""

    def go_on(self) -> None:
        moving = [run_id for run_id, run in sorted(self.state.runs.items()) if run.withdrawing and not run.noticed_at]
        moving = [run_id for run_id in moving if self.state.runs[run_id].lease_state is LeaseState.NEXT]
        if moving and self.random.random() < 0.7:
            self.apply(lifecycle.run_started, self.random.choice(moving), self.now)
        else:
            super().go_on()

    def decide(self) -> None:
        super().decide()
        for pool in self.pools():
            assert_nothing_is_given_twice(pool.state)


def assert_nothing_is_given_twice(state: PoolState) -> None:
    """Runs that live, or leave, and those that follow fit the cards, as the database asks."""
    for kinds in ({LeaseState.LIVE, LeaseState.LEAVING}, {LeaseState.LIVE, LeaseState.NEXT}):
        slots: Counter[str] = Counter()
        for run in state.runs.values():
            if run.lease_state in kinds:
                for lease in run.leases:
                    slots[lease.gpu_id] += lease.slots
        assert all(taken <= state.gpus[gpu_id].slots for gpu_id, taken in slots.items())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_given_twice_where_holds_start_that_were_to_move(seed: int) -> None:
    Hasty(seed).live(STEPS)
