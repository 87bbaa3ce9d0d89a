"""Who may be asked to leave for a preemptor: each possible victim with its rule, its cost and its place in order."""

from collections.abc import Iterable, Sequence

from makeway_policy import costs, protection, quota
from makeway_policy.copies import value
from makeway_policy.model import Group, Job, NodeHealth, Run
from makeway_policy.priority import outranks
from makeway_policy.question import Question
from makeway_policy.state import is_leaving


@value(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A run that may be taken, with what ranks it."""

    run: Run
    cost_gpu_seconds: float
    grace_seconds: float
    rule: str
    key: tuple[float, ...]


def candidates_on(question: Question, node_ids: Sequence[str]) -> list[Candidate]:
    """Who may be taken on these nodes, in the order in which they are added to a set."""
    runs = {run.run_id: run for node_id in node_ids for run in question.state.runs_on_node(node_id)}
    found = [candidate for run in runs.values() if (candidate := candidate_of(question, run)) is not None]
    return sorted(found, key=lambda candidate: candidate.key)


def candidate_of(question: Question, run: Run) -> Candidate | None:
    """The run as a possible victim of the preemptor; None if the rules or its protection forbid it."""
    rule = rule_for(question, run)
    if rule is None or protection_from(question, run) is not None:
        return None
    state, policy = question.state, question.policy
    job = state.jobs[run.job_id]
    hold = protection.is_hold(run)
    cost = 0.0 if hold else costs.cost_of(job, run, policy, question.now)
    return Candidate(
        run=run,
        cost_gpu_seconds=cost,
        grace_seconds=_draining_seconds(question, run) if hold else costs.grace_of(job, policy),
        rule=rule,
        key=(run.v, cost, -job.submitted_at, -job.order),
    )


def _draining_seconds(question: Question, hold: Run) -> float:
    """How long whoever takes the hold over waits for those who still leave for it."""
    return leaves_by(question, hold.after) - question.now


def rule_for(question: Question, run: Run) -> str | None:
    """By which rule the preemptor may take the run, protection aside: "priority", "reclaim", or None."""
    preemptor, state = question.preemptor, question.state
    victim = state.jobs[run.job_id]
    if victim.job_id == preemptor.job.job_id or is_leaving(run):
        return None
    if any(state.nodes[node_id].health is not NodeHealth.READY for node_id in run.node_ids):
        return None
    if preemptor.by_priority and outranks(preemptor.job, preemptor.v, victim, run.v, question.policy):
        return "priority"
    if preemptor.by_reclaim and victim.team != preemptor.job.team:
        return "reclaim" if quota.is_borrowed(state, run) else None
    return None


def protection_from(question: Question, run: Run) -> protection.Protection | None:
    """What protects the run against this preemptor, in the order of checks of `protection`."""
    state, policy, preemptor = question.state, question.policy, question.preemptor
    victim = state.jobs[run.job_id]
    own = protection.of_run(state, policy, run, question.now, overrides=preemptor.overrides)
    if own is not None and own.guard is protection.Guard.NOT_PREEMPTIBLE:
        return own
    if _guaranteed_against(question, run, victim):
        return protection.Protection(
            guard=protection.Guard.GUARANTEE,
            until=None,
            sentence=f"it is inside the guarantee of team {victim.team}",
        )
    if own is not None:
        return own
    deadline = preemptor.job.deadline
    if (
        deadline is not None
        and question.now + costs.grace_of(victim, policy) > deadline
        and not protection.is_hold(run)
    ):
        return protection.Protection(
            guard=protection.Guard.DEADLINE, until=None, sentence="it could only leave after the deadline"
        )
    return None


def _guaranteed_against(question: Question, run: Run, victim: Job) -> bool:
    state, preemptor = question.state, question.preemptor
    if state.team(victim.team).guarantee == 0:
        return False
    if victim.team == preemptor.job.team:
        return run.reclaimed and quota.would_borrow(state, preemptor.job, preemptor.v)
    return not quota.is_borrowed(state, run)


def leaves_by(question: Question, run_ids: Iterable[str]) -> float:
    """When the last of the runs is gone at the latest."""
    moments = [question.now]
    for run_id in run_ids:
        run = question.state.runs[run_id]
        if run.leaves_by is not None:
            moments.append(run.leaves_by)
        elif run.noticed_at is not None:
            moments.append(run.noticed_at + run.grace_seconds)
    return max(moments)


def groups_of(question: Question, taken: Sequence[Candidate]) -> list[tuple[Group, int]]:
    """The disruption groups of the set, and how many of its jobs are in each."""
    names = [question.state.jobs[each.run.job_id].group for each in taken if not protection.is_hold(each.run)]
    known = [name for name in dict.fromkeys(names) if name is not None and name in question.state.groups]
    return [(question.state.groups[name], names.count(name)) for name in known]
