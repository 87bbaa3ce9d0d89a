"""Whether a preemptor has room once a set of victims has left, whether the set is legal, whom of it can be spared."""

from collections.abc import Sequence

from makeway_policy import placement, protection, quota
from makeway_policy.candidates import Candidate, groups_of, leaves_by
from makeway_policy.model import LeaseKind
from makeway_policy.priority import class_of
from makeway_policy.question import Question
from makeway_policy.rooms import NodeRoom, trial_room, with_cards
from makeway_policy.victim_sets import Plan, plan_of

Fits = tuple[placement.Fit, ...]
"""Where the members are placed, one after the other."""


def spare(question: Question, fits: Fits, taken: Sequence[Candidate], patience: float) -> tuple[Fits, list[Candidate]]:
    """Put back whoever is not needed, highest v first, then highest cost: the members' places, and who has to leave.

    `fits` are the places once all of `taken` have left.
    """
    nodes = tuple(each.member.node_id for each in fits)
    needed = list(taken)
    for candidate in sorted(taken, key=lambda each: (-each.run.v, -each.cost_gpu_seconds, each.key[2:])):
        fewer = [each for each in needed if each is not candidate]
        if len(nodes) == 1 and not could_fit(question, nodes[0], fewer):
            continue
        fitted = place(question, nodes, fewer, patience)
        if fitted is not None:
            needed, fits = fewer, fitted
    return fits, needed


def legal_plan(question: Question, fits: Fits, taken: Sequence[Candidate]) -> Plan | None:
    """The plan by which these leave, none of whom is barred; None if the preemptor may not have what it would get."""
    return plan_of(question, fits, taken) if _may_have(question, fits, taken) else None


def barred(question: Question, taken: Sequence[Candidate]) -> list[Candidate]:
    """Who of a set may not be taken beside the others: for a hard group's sake, or one for a team's guarantee."""
    state = question.state
    room = {group.name: protection.group_room(state, group) for group, _ in groups_of(question, taken) if group.hard}
    found = []
    for each in sorted(taken, key=lambda each: each.key) if room else ():
        name = None if protection.is_hold(each.run) else state.jobs[each.run.job_id].group
        if name in room:
            room[name] -= 1
            if room[name] < 0:
                found.append(each)
    # Without one of them the others may be borrowed still.
    return found or _guaranteed(question, taken)[-1:]


def place(
    question: Question, nodes: tuple[str, ...], taken: Sequence[Candidate], patience: float
) -> tuple[placement.Fit, ...] | None:
    """The members on their nodes once `taken` have left; None if one does not fit, or a quota forbids it."""
    gone = [each.run.run_id for each in taken]
    if not within_quota(question, gone):
        return None
    job, state = question.preemptor.job, question.state
    strategy = class_of(job, question.policy).placement
    fits: list[placement.Fit] = []
    for node_id in nodes:
        room = trial_room(state, question.rooms[node_id], gone, [each.member for each in fits])
        fitted = placement.fit(_patient(question, room, gone, patience), job, question.policy, strategy, later=True)
        if fitted is None:
            return None
        fits.append(fitted)
    # What a share counts is known only now.
    return tuple(fits) if _is_whole(question) or _within_by_placement(question, fits, gone) else None


def could_fit(question: Question, node_id: str, taken: Sequence[Candidate]) -> bool:
    """Whether enough cards would be empty; asked before the whole placement is tried."""
    shape = question.preemptor.job.shape
    if placement.kind_of(shape) is not LeaseKind.WHOLE:
        return True
    gone = {each.run.run_id for each in taken}
    cards = question.rooms[node_id].cards
    return sum(1 for card in cards if all(run_id in gone for run_id in card.staying)) >= shape.gpus


def within_quota(question: Question, gone: Sequence[str]) -> bool:
    """Whether the preemptor is within its quota once the runs `gone` have left."""
    job = question.preemptor.job
    units = quota.needed_units(job, None, question.state)
    return quota.refusal_of(question.state, question.policy, job, units, gone) is None


def _patient(question: Question, room: NodeRoom, gone: Sequence[str], patience: float) -> NodeRoom:
    """The room without the cards that others leave only after `patience`; a hold that is taken brings its own wait."""
    going = [run.run_id for run in room.leaving if run.run_id not in gone]
    slow = {run_id for run_id in going if leaves_by(question, (run_id,)) > patience}
    if not slow:
        return room
    taken = {run_id for run_id in gone if protection.is_hold(question.state.runs[run_id])}
    cards = [card for card in room.cards if not slow.intersection(card.leaving) or taken.intersection(card.leaving)]
    return with_cards(room, cards)


def _guaranteed(question: Question, taken: Sequence[Candidate]) -> list[Candidate]:
    """The victims of other teams that are not borrowed any more when the other victims have gone."""
    state, own_team = question.state, question.preemptor.job.team
    gone = {each.run.run_id for each in taken}
    found = []
    for each in taken:
        team = state.jobs[each.run.job_id].team
        if team == own_team or state.team(team).guarantee == 0:
            continue
        if not quota.is_borrowed(state, each.run, gone - {each.run.run_id}):
            found.append(each)
    return found


def _may_have(question: Question, fits: Sequence[placement.Fit], taken: Sequence[Candidate]) -> bool:
    """For a reclaim, the guarantee by what the placement takes: of a share that is known only now."""
    if _is_whole(question) or all(each.rule != "reclaim" for each in taken):
        return True
    gone = [each.run.run_id for each in taken]
    return quota.within_guarantee(question.state, question.preemptor.job, _units(question, fits), gone)


def _within_by_placement(question: Question, fits: Sequence[placement.Fit], gone: Sequence[str]) -> bool:
    units = _units(question, fits)
    return quota.refusal_of(question.state, question.policy, question.preemptor.job, units, gone) is None


def _units(question: Question, fits: Sequence[placement.Fit]) -> int:
    return quota.units_of_members(question.state, [each.member for each in fits])


def _is_whole(question: Question) -> bool:
    return placement.kind_of(question.preemptor.job.shape) is LeaseKind.WHOLE
