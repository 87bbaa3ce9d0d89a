"""The rivals decide as their authors do, on clusters small enough to follow by hand."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from makeway_simulator.outcome import EndKind, JobOutcome, quantile, summarise
from makeway_simulator.rivals.attained import LeastAttained
from makeway_simulator.rivals.loop import Charge, Cost, Rival, placeable, run
from makeway_simulator.rivals.seats import Seats
from makeway_simulator.rivals.shortest import srsf, srtf
from makeway_simulator.trace import Cluster, TraceJob

PEER, RESUME = Charge(cost=Cost.PEER), Charge(cost=Cost.RESUME)
PAIR = Cluster(nodes=1, gpus_per_node=2)


def job(job_id: str, at: float, work: float, gpus: int = 1, startup: float = 0.0) -> TraceJob:
    return TraceJob(job_id=job_id, submitted_at=at, gpus=gpus, work_seconds=work, startup_seconds=startup)


def ends(outcomes: list[JobOutcome]) -> dict[str, float]:
    return {each.job_id: each.finished_at for each in outcomes}


def test_srtf_pushes_the_longer_job_aside() -> None:
    outcomes = run([job("long", 0, 100, 2), job("short", 10, 5, 2)], srtf(PAIR), PEER)
    assert ends(outcomes) == {"short": 15, "long": 105}
    assert {each.job_id: each.preemptions for each in outcomes} == {"short": 0, "long": 1}


def test_srsf_weighs_remaining_time_by_gpus() -> None:
    jobs = [job("wide", 0, 10, 2), job("narrow", 0, 15, 1)]
    assert ends(run(jobs, srtf(PAIR), PEER)) == {"wide": 10, "narrow": 25}
    assert ends(run(jobs, srsf(PAIR), PEER)) == {"narrow": 15, "wide": 25}


def test_what_does_not_fit_is_skipped_and_more_than_a_node_takes_idle_nodes() -> None:
    cluster = Cluster(nodes=2, gpus_per_node=2)
    jobs = [job("small", 0, 5, 1), job("wide", 0, 6, 4), job("other", 0, 7, 2)]
    assert ends(run(jobs, srtf(cluster), PEER)) == {"small": 5, "other": 7, "wide": 13}


def test_the_peer_charges_each_event_and_resume_only_starts() -> None:
    jobs = [job("a", 0, 20, 1, startup=2), job("b", 10, 1, 1)]
    assert ends(run(jobs, srtf(PAIR), PEER))["a"] == 20 + 2 + 1
    assert ends(run(jobs, srtf(PAIR), RESUME))["a"] == 22


def test_a_job_that_moves_to_another_node_pays_like_one_that_resumes() -> None:
    cluster = Cluster(nodes=2, gpus_per_node=1)
    jobs = [job("first", 0, 10, 1, startup=1), job("second", 0, 100, 1, startup=1)]
    second = next(each for each in run(jobs, srtf(cluster), RESUME) if each.job_id == "second")
    assert second.lost_gpu_seconds == 2


def test_a_resume_costs_what_is_said_where_the_trace_is_silent() -> None:
    jobs = [TraceJob(job_id=name, submitted_at=at, gpus=2, work_seconds=work) for name, at, work in
            (("long", 0, 100), ("short", 10, 5))]  # fmt: skip
    assert ends(run(jobs, srtf(PAIR), Charge(restart_seconds=7)))["long"] == 105 + 7


def test_least_attained_demotes_at_its_thresholds() -> None:
    one = Cluster(nodes=1, gpus_per_node=1)
    outcomes = run([job("old", 0, 10_000), job("new", 3_000, 100)], LeastAttained(one), PEER)
    assert ends(outcomes)["new"] == 3_250 + 100


def test_a_demotion_that_rounding_puts_at_now_still_moves_the_clock() -> None:
    jobs = [job(f"j{number}", 0.1 * number, 5_000.3, 3, startup=7) for number in range(5)]
    assert len(run(jobs, LeastAttained(Cluster(nodes=1, gpus_per_node=4)), PEER)) == 5


def followed(jobs: list[TraceJob], rival: Rival, cluster: Cluster, charge: Charge = RESUME) -> Seats:
    seats = Seats(cluster)
    run(jobs, rival, charge, follow=seats.follow)
    return seats


def drawn(seats: Seats) -> list[tuple[object, ...]]:
    return [(each.job_id, each.run, each.gpus, each.started_at, each.ended_at, each.kind) for each in seats.segments]


def test_it_is_seen_on_which_gpus_a_rival_ran_whom_and_whom_it_pushed_aside() -> None:
    seats = followed([job("long", 0, 100, 2), job("short", 10, 5, 2)], srtf(PAIR), PAIR)
    both = ("node-0000/0", "node-0000/1")
    assert drawn(seats) == [
        ("long", 1, both, 0, 10, EndKind.PREEMPTED),
        ("short", 1, both, 10, 15, EndKind.FINISHED),
        ("long", 2, both, 15, 105, EndKind.FINISHED),
    ]
    assert [(each.at, each.waiting, each.busy_gpus) for each in seats.moments] == [
        (0, 0, 2),
        (10, 1, 2),
        (15, 0, 2),
        (105, 0, 0),
    ]


def test_a_move_is_no_preemption_and_its_restart_is_seen() -> None:
    cluster = Cluster(nodes=2, gpus_per_node=1)
    seats = followed([job("first", 0, 10, startup=1), job("second", 0, 100, startup=1)], srtf(cluster), cluster)
    second = [each for each in seats.segments if each.job_id == "second"]
    assert [(each.gpus, each.kind) for each in second] == [
        (("node-0001/0",), EndKind.MOVED),
        (("node-0000/0",), EndKind.FINISHED),
    ]
    assert second[1].ready_at - second[1].started_at == 1


@settings(deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 6), st.floats(0, 5_000), st.floats(1, 8_000)), min_size=1, max_size=25),
    rival=st.sampled_from([srtf, srsf, LeastAttained]),
)
def test_no_gpu_is_drawn_twice_at_a_time(
    sizes: list[tuple[int, float, float]], rival: Callable[[Cluster], Rival]
) -> None:
    cluster = Cluster(nodes=2, gpus_per_node=4)
    jobs = [job(f"j{at}", when, work, gpus, startup=3) for at, (gpus, when, work) in enumerate(sizes)]
    fitting, _ = placeable(sorted(jobs, key=lambda each: each.submitted_at), cluster)
    seats = followed(fitting, rival(cluster), cluster)
    by_gpu: dict[str, list[tuple[float, float]]] = {}
    for segment in seats.segments:
        for gpu in segment.gpus:
            by_gpu.setdefault(gpu, []).append((segment.started_at, segment.ended_at))
    for spans in by_gpu.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert {each.job_id for each in seats.segments if each.kind is EndKind.FINISHED} == {
        each.job_id for each in fitting
    }


def test_jobs_that_could_never_fit_are_told_apart() -> None:
    fitting, refused = placeable([job("fits", 0, 1, 2), job("huge", 0, 1, 4)], PAIR)
    assert ([each.job_id for each in fitting], refused) == (["fits"], 1)


def test_figures_count_as_the_published_tables_do() -> None:
    outcomes = run([job(f"j{number}", 0, 1 + number, 2) for number in range(4)], srtf(PAIR), PEER)
    figures = summarise(outcomes, PAIR.gpus, refused=0)
    assert figures.average_jct_seconds == pytest.approx((1 + 3 + 6 + 10) / 4)
    assert figures.makespan_seconds == 10
    assert figures.gpu_utilisation == 1
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3
    assert summarise([], 8, refused=2).refused == 2
