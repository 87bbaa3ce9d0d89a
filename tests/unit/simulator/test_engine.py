"""makeway's own policy on the virtual clock: the timelines of the worked examples, and what runs cost."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from makeway_policy.model import Mode, Team
from makeway_policy.presets import DEFAULT, PLAIN
from makeway_policy.rules import Order, Policy
from makeway_simulator.engine import Engine
from makeway_simulator.outcome import EndKind
from makeway_simulator.physics import Physics
from makeway_simulator.record import Record
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.setting import Setting, shape_of
from makeway_simulator.trace import Cluster, TraceJob

ONE = Cluster(nodes=1, gpus_per_node=1)


def job(job_id: str, at: float, work: float, priority: int | None = None, gpus: int = 1, **more: object) -> TraceJob:
    return TraceJob(job_id=job_id, submitted_at=at, gpus=gpus, work_seconds=work, priority=priority, **more)  # type: ignore[arg-type]


def ran(
    jobs: Sequence[TraceJob],
    cluster: Cluster = ONE,
    policy: Policy = PLAIN,
    cost: Cost = Cost.RESUME,
    **physics: object,
) -> Record:
    setting = Setting(cluster=cluster, policy=policy, physics=Physics(**physics), cost=cost)  # type: ignore[arg-type]
    return Engine(jobs, setting).run()


def timeline(record: Record) -> list[tuple[str, float, float]]:
    return [(each.job_id, each.started_at, each.ended_at) for each in record.segments]


GOLDEN = [job("A", 0, 10, 5), job("B", 1, 4, 80), job("C", 2.5, 6, 20)]


def test_the_worked_example_on_one_gpu() -> None:
    assert timeline(ran(GOLDEN)) == [("A", 0, 1), ("B", 1, 5), ("C", 5, 11), ("A", 11, 20)]


def test_of_two_urgent_jobs_of_one_moment_the_higher_is_served_first_and_each_evicts_one() -> None:
    low = [job(f"low{number}", 0, 10, 10) for number in range(4)]
    record = ran([*low, job("u100", 1, 3, 100), job("u200", 1, 3, 200)], Cluster(nodes=1, gpus_per_node=4))
    assert [each.preemptor for each in record.preemptions] == ["u200", "u100"]
    assert len({each.victim for each in record.preemptions}) == 2
    assert {each.job_id: each.waited_seconds for each in record.outcomes}["u200"] == 0


def test_the_same_input_gives_the_same_record() -> None:
    assert ran(GOLDEN) == ran(GOLDEN)


def test_a_save_takes_its_time_and_a_resume_too() -> None:
    record = ran(GOLDEN[:2], save_seconds=2.0, restore_seconds=3.0)
    assert timeline(record) == [("A", 0, 3), ("B", 3, 7), ("A", 7, 7 + 3 + 9)]


def test_a_grace_that_is_too_short_loses_what_was_not_saved() -> None:
    record = ran(GOLDEN[:2], save_seconds=2.0, grace_seconds=0.5)
    assert timeline(record) == [("A", 0, 1.5), ("B", 1.5, 5.5), ("A", 5.5, 15.5)]


def test_periodic_saves_bound_what_is_lost() -> None:
    jobs = [job("A", 0, 100, 5), job("B", 65, 10, 80)]
    record = ran(jobs, checkpoint_interval_seconds=20.0, save_seconds=1.0, grace_seconds=0.0)
    first, _, second = record.segments
    assert (first.ended_at, first.saved_seconds) == (65, 60)
    assert second.ended_at - second.started_at == 40 + 1


@pytest.mark.parametrize(("mode", "done"), [(Mode.REQUEUE, 4 + 10 + 1), (Mode.CHECKPOINT, 4 + 10)])
def test_requeue_starts_over_and_checkpoint_goes_on(mode: Mode, done: float) -> None:
    record = ran(GOLDEN[:2], mode=mode)
    assert record.outcomes[-1].finished_at == done


def test_cancel_ends_the_victim() -> None:
    record = ran(GOLDEN[:2], mode=Mode.CANCEL)
    assert {each.job_id: each.kind for each in record.outcomes} == {"A": EndKind.CANCELLED, "B": EndKind.FINISHED}


def test_without_preemption_nobody_makes_way() -> None:
    record = ran(GOLDEN, policy=replace(PLAIN, preemption=False))
    assert timeline(record) == [("A", 0, 10), ("B", 10, 14), ("C", 14, 20)]


def test_a_time_limit_counts_over_all_runs_and_ends_the_job() -> None:
    record = ran([job("A", 0, 10, 5, time_limit_seconds=6.0), job("B", 1, 4, 80)])
    assert timeline(record) == [("A", 0, 1), ("B", 1, 5), ("A", 5, 10)]
    assert record.ended[EndKind.TIMED_OUT] == 1


def test_lost_and_held_gpu_seconds_add_up() -> None:
    record = ran(GOLDEN[:2], save_seconds=2.0, restore_seconds=3.0)
    a = next(each for each in record.outcomes if each.job_id == "A")
    assert (a.held_gpu_seconds, a.lost_gpu_seconds) == (15, 5)


def test_a_job_that_fits_no_node_is_counted_as_refused() -> None:
    record = ran([job("huge", 0, 1, 5, gpus=3)], Cluster(nodes=1, gpus_per_node=2))
    assert (record.refused, record.unfinished, record.outcomes) == (1, 1, [])


def test_a_job_of_more_gpus_than_a_node_becomes_equal_members() -> None:
    cluster = Cluster(nodes=4, gpus_per_node=8)
    assert [(shape_of(gpus, cluster).members, shape_of(gpus, cluster).gpus) for gpus in (8, 16, 12, 32)] == [
        (1, 8), (2, 8), (2, 6), (4, 8),
    ]  # fmt: skip


def test_the_peers_cost_model_charges_every_running_job_at_every_event() -> None:
    jobs = [job("A", 0, 100, 5, startup_seconds=3.0), job("B", 10, 1, 5, startup_seconds=0.0)]
    record = ran(jobs, Cluster(nodes=1, gpus_per_node=2), cost=Cost.PEER)
    a = next(each for each in record.outcomes if each.job_id == "A")
    # Until B comes it has lost 3 s, until B ends another 1 s of the 1 s that passed.
    assert a.finished_at == 100 + 3 + 1


def test_two_teams_that_deserve_ten_of_a_hundred_share_the_rest_three_to_one() -> None:
    teams = (Team(team_id="a", guarantee=10, weight=3), Team(team_id="b", guarantee=10, weight=1))
    jobs = [job(f"{team}{number}", 0, 100, None, team=team) for number in range(100) for team in ("a", "b")]
    setting = Setting(
        cluster=Cluster(nodes=10, gpus_per_node=10), policy=replace(DEFAULT, order=Order.FAIR), teams=teams
    )
    record = Engine(jobs, setting).run(until=50)
    running = [job_id[0] for job_id in record.running]
    assert (running.count("a"), running.count("b")) == (70, 30)
