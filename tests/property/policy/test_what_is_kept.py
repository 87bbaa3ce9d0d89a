"""What the index keeps from call to call, and brings up to date where something changed, is as if found anew."""

from dataclasses import replace
from typing import Any

import pytest
from makeway_policy import placement, priority, protection
from makeway_policy.index import Index
from makeway_policy.reach import NodeReach, node_reach
from makeway_policy.rooms import node_room
from policy_history import History, Pool

STEPS = 60
SEEDS = 16


class Watched(History):
    """A history in which all that is kept is looked at after each decision."""

    def decide(self) -> None:
        super().decide()
        for pool in self.pools():
            index = Index.of(pool.state, pool.policy)
            assert_rooms(pool, index)
            assert_reaches(pool, index, self.now)
            assert_in_reach(pool, index, self.now)
            assert_outlooks(pool, self.now)


def assert_rooms(pool: Pool, index: Index) -> None:
    assert set(index.rooms) == set(pool.state.nodes)
    for node_id, room in index.rooms.items():
        anew = node_room(pool.state, pool.state.nodes[node_id])
        assert without_runs(room) == without_runs(anew)
        assert [[run.run_id for run in card.runs] for card in room.cards] == [
            [run.run_id for run in card.runs] for card in anew.cards
        ]


def without_runs(room: Any) -> Any:
    """What is left where; whether the runs there have started is not kept."""
    cards = tuple(replace(card, runs=()) for card in room.cards)
    return replace(room, cards=cards, leaving=tuple(run.run_id for run in room.leaving))


def thresholds(reach: NodeReach) -> list[Any]:
    return [(card.plain, card.override, card.part, card.lowest, card.grace) for card in reach.cards]


def assert_reaches(pool: Pool, index: Index, now: float) -> None:
    """What is noted of a node that was filled since may be too low, never too high."""
    for node_id, reach in index.reaches.items():
        anew = node_reach(pool.state, pool.policy, index.rooms[node_id], now)
        if index.hosts.is_filled(node_id):
            for kept, found in zip(thresholds(reach), thresholds(anew), strict=True):
                assert all(one <= other for one, other in zip(kept[:3], found[:3], strict=True))
        else:
            assert thresholds(reach) == thresholds(anew)


def assert_in_reach(pool: Pool, index: Index, now: float) -> None:
    """Nobody is told that there is no node to look at where there is one."""
    anew = [node_reach(pool.state, pool.policy, room, now) for room in index.rooms.values()]
    for job_id in index.queue.place:
        job = pool.state.jobs[job_id]
        limit = index.hosts.limit_now(job, now)
        overrides = priority.class_of(job, pool.policy).overrides_minimum_run
        suiting = [
            reach for reach in anew if placement.suitable(reach.room, job.shape, pool.policy) or not job.shape.gpus
        ]
        if limit is not None and any(reach.bound(job.shape, overrides=overrides) <= limit for reach in suiting):
            assert index.hosts.in_reach(job, now)


def assert_outlooks(pool: Pool, now: float) -> None:
    """What protects a run is said with and without words."""
    for run in pool.state.runs.values():
        job = pool.state.jobs[run.job_id]
        plain, override = (
            protection.of_run(pool.state, pool.policy, run, now, overrides=overrides) for overrides in (False, True)
        )
        until = protection.protection_changes_at(pool.state, pool.policy, run, now)
        expected = (plain is not None, override is not None, float("inf") if until is None else until)
        assert protection.outlook(pool.state, pool.policy, job, run, now) == expected


@pytest.mark.parametrize("seed", [*range(SEEDS), 33])
def test_what_is_kept_is_what_is_so(seed: int) -> None:
    Watched(seed).live(STEPS)
