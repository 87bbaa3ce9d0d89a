"""Whoever waits is judged as soon as something changes that concerns it, in pools too large to judge everybody."""

from dataclasses import replace

import pytest
from makeway_policy import lifecycle
from makeway_policy.choices import Choice, Evict, Preempt, Start, Wait, Withdraw
from makeway_policy.decide import decide
from makeway_policy.evictions import preempt_by_hand
from makeway_policy.index import Index
from makeway_policy.model import Gpu, Job, Node, Reason, Shape, Team
from makeway_policy.presets import DEFAULT
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

NEVER_ALL = replace(DEFAULT, recheck_seconds=1e12)
"""Nobody is judged again but by the rules."""


def card(gpu_id: str, node_id: str = "n", index: int = 0, **given: object) -> Gpu:
    return Gpu(
        **{"type_name": "H100", "vram_mib": 80_000, "gpu_id": gpu_id, "node_id": node_id, "index": index} | given
    )


def job(order: int, class_name: str, shape: Shape, **given: object) -> Job:
    return Job(
        **{
            "job_id": f"j{order}", "order": order, "team": "t", "class_name": class_name, "submitted_at": float(order),
            "queued_since": float(order), "shape": shape,
        }
        | given
    )  # fmt: skip


def step(state: PoolState, now: float, policy: Policy = NEVER_ALL) -> tuple[Choice, ...]:
    """A pass by the rules for large pools."""
    Index.of(state, policy).wakeups.few = 0
    choices = decide(state, policy, now).choices
    for run_id, run in tuple(state.runs.items()):
        if run.started_at is None and not run.after:
            lifecycle.run_started(state, run_id, now)
    return choices


def told(choices: tuple[Choice, ...]) -> dict[str, Reason]:
    """The reasons that jobs are told."""
    return {choice.job_id: choice.refusal.reason for choice in choices if isinstance(choice, Wait)}


def reserved_pair() -> PoolState:
    """On n0 a run of class low; on n1 a free card, kept for a job that wants it with the one beside it."""
    state = PoolState()
    for node_id, cards in (("n0", 1), ("n1", 2)):
        state.put_node(Node(node_id=node_id))
        for index in range(cards):
            state.put_gpu(card(f"{node_id}/{index}", node_id, index))
    state.put_job(job(1, "low", Shape(gpus=1, nodes=frozenset({"n0"}))))
    fixed = {"preemptible": False, "time_limit_seconds": 50_000.0}
    state.put_job(job(2, "normal", Shape(gpus=1, nodes=frozenset({"n1"})), **fixed))
    step(state, 2.0)
    state.put_job(job(3, "normal", Shape(gpus=2), own_priority=510, submitted_at=1_000.0, queued_since=1_000.0))
    step(state, 1_000.0)
    return state


@pytest.mark.parametrize(
    "beside",
    [
        [],
        [card("other", index=1, type_name="A100")],
        [card("cut", index=1, in_mig_mode=True), card("cut.0", index=1, mig_profile="1g.10gb", vram_mib=10_000)],
    ],
)
def test_a_free_card_that_does_not_suit_hides_no_run_beside_it(beside: list[Gpu]) -> None:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    for each in (card("h"), *beside):
        state.put_gpu(each)
    state.put_job(job(1, "normal", Shape(gpus=1, gpu_type="H100")))
    step(state, 0.0)
    state.put_job(job(2, "high", Shape(gpus=1, gpu_type="H100")))
    assert [type(choice) for choice in step(state, 100.0)] == [Wait]
    # It has aged, which has it judged too.
    assert not step(state, 300.0)
    # The minimum run of ten minutes is over.
    assert [type(choice) for choice in step(state, 600.0)] == [Preempt]


def test_a_free_card_that_a_job_avoids_hides_no_run_beside_it() -> None:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    for index in (0, 1):
        state.put_gpu(card(f"h{index}", index=index))
    state.put_job(job(1, "normal", Shape(gpus=1)))
    step(state, 0.0)
    state.put_job(job(2, "high", Shape(gpus=1), avoid_gpus=frozenset({"h1"})))
    assert [type(choice) for choice in step(state, 100.0)] == [Wait]
    assert not step(state, 300.0)
    assert [type(choice) for choice in step(state, 600.0)] == [Preempt]


def test_who_can_never_run_any_more_keeps_nothing_for_itself() -> None:
    state = PoolState()
    for node_id, cards in (("n0", 2), ("n1", 1)):
        state.put_node(Node(node_id=node_id))
        for index in range(cards):
            state.put_gpu(card(f"{node_id}/{index}", node_id, index))
    state.put_job(job(1, "normal", Shape(gpus=1, nodes=frozenset({"n0"})), preemptible=False))
    step(state, 1.0)
    state.put_job(job(2, "normal", Shape(gpus=2)))
    step(state, 2.0)
    state.put_job(job(3, "normal", Shape(gpus=1, nodes=frozenset({"n0"})), preemptible=False))
    assert [type(choice) for choice in step(state, 3.0)] == [Wait]
    lifecycle.run_released(state, "j1.1", 4.0)
    state.remove_job("j1")
    state.remove_gpu("n0/1")
    wait, start = step(state, 4.0)
    assert isinstance(wait, Wait)
    assert wait.refusal.reason is Reason.NEVER_FITS
    assert isinstance(start, Start)
    assert start.job_id == "j3"


def test_a_share_that_its_teams_limit_kept_from_victims_takes_them_when_its_team_uses_less() -> None:
    state = PoolState()
    state.put_team(Team(team_id="t", limit=2.0))
    for node_id, cards, type_name in (("n0", 2, "A100"), ("n1", 1, "H100")):
        state.put_node(Node(node_id=node_id))
        for index in range(cards):
            state.put_gpu(card(f"{node_id}/{index}", node_id, index, type_name=type_name))
    state.put_job(job(1, "high", Shape(gpus=2, gpu_type="A100")))
    state.put_job(job(2, "low", Shape(gpus=1, gpu_type="H100"), team="other"))
    step(state, 0.0)
    state.put_job(job(3, "normal", Shape(gpus=1, gpu_type="H100", vram_mib=40_000)))
    assert [type(choice) for choice in step(state, 1.0)] == [Wait]
    lifecycle.run_released(state, "j1.1", 2.0)
    state.remove_job("j1")
    assert [type(choice) for choice in step(state, 2.0)] == [Preempt]


def test_a_gang_that_only_a_reservation_kept_out_reserves_once_its_room_is_taken() -> None:
    state = PoolState()
    state.put_team(Team(team_id="t"))
    state.put_team(Team(team_id="out", guarantee=2.0, gpu_hours_per_month=1.0, gpu_hours_used=1.0))
    for node_id, cards, type_name in (("n0", 2, "A100"), ("n1", 1, "A100"), ("n2", 1, "H100")):
        state.put_node(Node(node_id=node_id))
        for index in range(cards):
            state.put_gpu(card(f"{node_id}/{index}", node_id, index, type_name=type_name))
    short = {"preemptible": False, "time_limit_seconds": 600.0}
    state.put_job(job(1, "normal", Shape(gpus=1, nodes=frozenset({"n0"})), **short))
    step(state, 0.0)
    state.put_job(job(2, "normal", Shape(gpus=2, gpu_type="A100"), team="out"))
    state.put_job(job(3, "normal", Shape(gpus=1, gpu_type="A100", members=2, distinct_nodes=True)))
    assert told(step(state, 1.0)) == {"j2": Reason.TEAM_LIMIT, "j3": Reason.RESERVED_FOR_ANOTHER}
    state.put_job(job(4, "urgent", Shape(gpus=1, nodes=frozenset({"n1"}))))
    state.put_job(job(5, "normal", Shape(gpus=1, gpu_type="A100"), preemptible=False))
    choices = step(state, 2.0)
    assert [choice.job_id for choice in choices if isinstance(choice, Start)] == ["j4"]
    (refusal,) = [choice.refusal for choice in choices if isinstance(choice, Wait) and choice.job_id == "j5"]
    assert (refusal.reason, refusal.detail) == (Reason.RESERVED_FOR_ANOTHER, {"job": "j3"})


def test_a_holder_moves_once_it_has_aged_past_the_one_for_whom_a_free_card_was_kept() -> None:
    state = reserved_pair()
    state.put_job(job(4, "normal", Shape(gpus=1), submitted_at=0.0, queued_since=0.0))
    assert [type(choice) for choice in step(state, 1_001.0)] == [Preempt]
    assert not step(state, 7_439.0)
    (moved,) = step(state, 7_440.0)
    assert isinstance(moved, Withdraw)
    assert [member.node_id for member in moved.to or ()] == ["n1"]


def holder_beside_a_free_card(policy: Policy) -> PoolState:
    """A job that has taken a run of its own team, which may have no third card, though n2 is free."""
    state = PoolState()
    state.put_team(Team(team_id="t", limit=2.0))
    state.put_team(Team(team_id="other"))
    for node_id in ("n0", "n1", "n2"):
        state.put_node(Node(node_id=node_id))
        state.put_gpu(card(f"{node_id}/0", node_id))
    state.put_job(job(1, "low", Shape(gpus=1, nodes=frozenset({"n0"}))))
    state.put_job(job(2, "normal", Shape(gpus=1, nodes=frozenset({"n1"})), preemptible=False))
    step(state, 1.0, policy)
    state.put_job(job(3, "normal", Shape(gpus=1)))
    assert [type(choice) for choice in step(state, 2.0, policy)] == [Preempt]
    return state


def test_a_holder_moves_once_its_team_may_have_more_at_a_time() -> None:
    state = holder_beside_a_free_card(NEVER_ALL)
    state.put_team(Team(team_id="t", limit=3.0))
    (moved,) = step(state, 3.0)
    assert isinstance(moved, Withdraw)
    assert [member.node_id for member in moved.to or ()] == ["n2"]


def test_a_holder_stays_where_the_policy_says_so() -> None:
    staying = replace(NEVER_ALL, move_holds=False)
    state = holder_beside_a_free_card(staying)
    state.put_team(Team(team_id="t", limit=3.0))
    assert not step(state, 3.0, staying)


def test_a_run_beside_one_that_stays_is_taken_once_its_minimum_run_is_over() -> None:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    state.put_gpu(card("h"))
    half = Shape(gpus=1, vram_mib=40_000)
    state.put_job(job(1, "normal", half, preemptible=False))
    state.put_job(job(2, "normal", half))
    step(state, 0.0)
    state.put_job(job(3, "high", half))
    assert [type(choice) for choice in step(state, 100.0)] == [Wait]
    assert not step(state, 300.0)
    assert [type(choice) for choice in step(state, 600.0)] == [Preempt]


def test_a_run_beside_one_that_leaves_is_taken_once_both_would_be_gone_together() -> None:
    state = PoolState()
    state.put_node(Node(node_id="n"))
    state.put_gpu(card("h"))
    half = Shape(gpus=1, vram_mib=40_000)
    state.put_job(job(1, "normal", half))
    state.put_job(job(2, "low", half))
    step(state, 0.0)
    assert isinstance(preempt_by_hand(state, NEVER_ALL, "j1", 10.0, force=True), Evict)
    state.put_job(job(3, "normal", Shape(gpus=1, vram_mib=80_000)))
    assert [type(choice) for choice in step(state, 20.0)] == [Wait]
    # The one has two minutes to leave, the other ten seconds.
    assert not step(state, 119.9)
    assert [type(choice) for choice in step(state, 120.1)] == [Preempt]


def test_a_share_beyond_its_teams_limit_takes_a_run_of_its_team_though_a_card_is_free() -> None:
    state = PoolState()
    state.put_team(Team(team_id="t", limit=1.25))
    state.put_node(Node(node_id="n"))
    for index in (0, 1):
        state.put_gpu(card(f"n/{index}", index=index))
    state.put_job(job(1, "low", Shape(gpus=1)))
    step(state, 1.0)
    state.put_job(job(2, "normal", Shape(gpus=1, vram_mib=40_000)))
    (preempted,) = step(state, 2.0)
    assert isinstance(preempted, Preempt)
    assert [victim.job_id for victim in preempted.victims] == ["j1"]


def test_cpus_that_are_given_back_are_not_overlooked_beside_a_run_that_starts() -> None:
    state = PoolState()
    state.put_node(Node(node_id="n", cpus=16.0))
    state.put_gpu(card("h"))
    state.put_job(job(1, "normal", Shape(gpus=0, cpus=4.0), preemptible=False))
    step(state, 0.0)
    state.put_job(job(2, "low", Shape(gpus=1, cpus=8.0)))
    decide(state, NEVER_ALL, 1.0)
    state.put_job(job(3, "high", Shape(gpus=1, cpus=16.0)))
    assert [type(choice) for choice in decide(state, NEVER_ALL, 2.0).choices] == [Wait]
    lifecycle.run_released(state, "j1.1", 3.0)
    state.remove_job("j1")
    lifecycle.run_started(state, "j2.1", 3.0)
    assert [type(choice) for choice in step(state, 3.0)] == [Preempt]


def shared_nodes() -> PoolState:
    """One card on each of four nodes, each for jobs that name it; teams g and h have one GPU guaranteed."""
    state = PoolState()
    for name in ("n0", "n1", "n2", "n3"):
        state.put_node(Node(node_id=name))
        state.put_gpu(card(f"{name}/0", name))
    for team, guarantee in (("g", 1.0), ("h", 1.0), ("u", 0.0)):
        state.put_team(Team(team_id=team, guarantee=guarantee))
    return state


def on(node_id: str) -> Shape:
    return Shape(gpus=1, nodes=frozenset({node_id}))


def test_whoever_is_within_its_guarantee_again_takes_back_what_others_borrow() -> None:
    state = shared_nodes()
    state.put_job(job(1, "normal", on("n0"), team="u"))
    state.put_job(job(2, "normal", on("n1"), team="g"))
    step(state, 3.0)
    state.put_job(job(3, "normal", on("n0"), team="g"))
    step(state, 2_000.0)
    assert state.run_of("j3") is None
    lifecycle.run_released(state, "j2.1", 2_001.0)
    state.remove_job("j2")
    assert [type(each) for each in step(state, 2_001.0) if not isinstance(each, Wait)] == [Preempt]


def test_a_run_that_is_borrowed_anew_is_taken_back_by_whoever_waits_for_its_guarantee() -> None:
    state = shared_nodes()
    state.put_job(job(1, "normal", on("n0"), team="g"))
    step(state, 2.0)
    state.put_job(job(2, "normal", on("n1"), team="g"))
    step(state, 3.0)
    lifecycle.run_released(state, "j1.1", 4.0)
    state.remove_job("j1")
    step(state, 4.0)
    state.put_job(job(3, "normal", on("n1"), team="h"))
    step(state, 2_000.0)
    assert state.run_of("j3") is None
    state.put_job(job(4, "high", on("n2"), team="g"))
    taken = [each for each in step(state, 2_001.0) if isinstance(each, Preempt)]
    assert [each.job_id for each in taken] == ["j3"]


def test_a_run_that_is_heard_to_have_started_only_after_its_minimum_run_may_be_taken() -> None:
    state = PoolState()
    for node_id, type_name in (("n0", "H100"), ("n1", "A100")):
        state.put_node(Node(node_id=node_id))
        state.put_gpu(card(f"{node_id}/0", node_id, type_name=type_name))
    state.put_job(job(1, "low", Shape(gpus=1, gpu_type="A100")))
    step(state, 1.0)
    state.put_job(job(2, "normal", Shape(gpus=1, gpu_type="H100")))
    state.put_job(job(3, "normal", Shape(gpus=1, gpu_type="A100"), own_priority=490))  # looks at all nodes
    assert [type(choice) for choice in decide(state, NEVER_ALL, 2.0).choices] == [Start, Preempt]
    lifecycle.run_started(state, "j2.1", 2.0)
    state.put_job(job(4, "normal", Shape(gpus=1, gpu_type="H100"), own_priority=600, submitted_at=700.0))
    assert [choice.job_id for choice in step(state, 700.0) if isinstance(choice, Preempt)] == ["j4"]
