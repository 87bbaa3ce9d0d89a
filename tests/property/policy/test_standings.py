"""Who is borrowed is the same whether a team's runs are kept in order or added up anew."""

from dataclasses import replace
from random import Random

import pytest
from makeway_policy import lifecycle, quota
from makeway_policy.model import Gpu, Job, Lease, LeaseState, Member, Node, Run, RunState, Shape, Team
from makeway_policy.state import UNITS_PER_GPU, PoolState, is_leaving

SEEDS = 40
STEPS = 60
TEAMS = ("a", "b")


def borrowed(state: PoolState, team: str, gone: frozenset[str]) -> set[str]:
    """By the words: they add up by v, highest first, then start; the first that overflows and all after it."""
    guarantee = round(state.team(team).guarantee * UNITS_PER_GPU)
    if state.used((team,), later=True) <= guarantee:
        return set()
    staying = [run for run in state.runs_of_team(team) if not is_leaving(run) and run.run_id not in gone]
    staying.sort(key=lambda run: (-run.v, run.started_at or run.decided_at, state.jobs[run.job_id].order))
    total, found = 0, set()
    for run in staying:
        total += quota.needed_units(state.jobs[run.job_id], run, state)
        if guarantee == 0 or total > guarantee:
            found.add(run.run_id)
    return found


def pool() -> PoolState:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    for index in range(12):
        state.put_gpu(Gpu(gpu_id=f"n/{index}", node_id="n", index=index, type_name="A", vram_mib=80, slots=4))
    for team in TEAMS:
        state.put_team(Team(team_id=team, guarantee=1.0))
    return state


def step(state: PoolState, random: Random, number: int) -> None:
    """A run comes, starts, is revalued, is told to leave, or is gone; or a team gets another guarantee."""
    draw, runs = random.choice, sorted(state.runs)
    free = [gpu_id for gpu_id in sorted(state.gpus) if not state.runs_on_gpu(gpu_id)]
    what = random.randrange(7)
    if (what < 3 or not runs) and free:
        shape = Shape(gpus=draw([0, 1, 2]), cpus=1.0)
        job = Job(
            job_id=f"j{number}", order=number, team=draw(TEAMS), class_name="low", submitted_at=0.0, queued_since=0.0,
            shape=shape,
        )  # fmt: skip
        state.put_job(job)
        slots = draw([4, 4, 1])
        leases = tuple(Lease(gpu_id=each, vram_mib=80 if slots == 4 else 0, slots=slots) for each in free[: shape.gpus])
        state.put_run(
            Run(
                run_id=f"j{number}.1", job_id=job.job_id, number=1, members=(Member(node_id="n", leases=leases),),
                lease_state=LeaseState.LIVE, v=draw([200, 500]), decided_at=float(draw([number, 5])),
            )
        )  # fmt: skip
    elif runs:
        run = state.runs[draw(runs)]
        if what == 3 and run.started_at is None:
            lifecycle.run_started(state, run.run_id, float(number))
        elif what == 4:
            state.put_run(replace(run, v=draw([200, 300, 800])))
        elif what == 5:
            state.put_run(replace(run, state=RunState.NOTICED, lease_state=LeaseState.LEAVING, noticed_at=1.0))
        elif draw([True, False]):
            state.remove_run(run.run_id, float(number))
        else:
            state.put_team(Team(team_id=draw(TEAMS), guarantee=draw([0.0, 1.0, 2.5, 4.0])))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_is_borrowed_is_known_after_any_change(seed: int) -> None:
    random, state, found = Random(seed), pool(), 0
    for number in range(1, STEPS):
        state.begin()
        step(state, random, number)
        if random.random() < 0.3:
            quota.borrowed_runs(state, random.choice(TEAMS))
        if random.random() < 0.3:
            state.rollback()
        else:
            state.commit()
        runs = sorted(state.runs)
        for gone in (frozenset[str](), frozenset(random.sample(runs, len(runs) // 3))):
            for team in TEAMS:
                expected = borrowed(state, team, gone)
                found += len(expected)
                assert expected == {
                    run.run_id for run in state.runs_of_team(team) if quota.is_borrowed(state, run, gone)
                }
                if not gone:
                    assert expected == set(quota.borrowed_runs(state, team))
    assert found
