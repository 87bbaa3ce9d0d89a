"""The words that are stored with a preemption: who was considered, who was spared, and why."""

from collections.abc import Mapping

from makeway_policy.candidates import Candidate, protection_from, rule_for
from makeway_policy.index import Index
from makeway_policy.model import Job, Run
from makeway_policy.question import Question, preemptor_of
from makeway_policy.state import is_leaving
from makeway_policy.victim_sets import Plan


def explain_plan(index: Index, job: Job, plan: Plan, now: float) -> Mapping[str, str]:
    """Run id to a sentence, for every run on the nodes of the placement."""
    state = index.state
    preemptor = preemptor_of(state, index.policy, job, now)
    question = Question(state=state, rooms=index.rooms, policy=index.policy, now=now, preemptor=preemptor)
    taken = {each.run.run_id: each for each in plan.victims}
    words: dict[str, str] = {}
    for node_id in dict.fromkeys(plan.nodes):
        for run in state.runs_on_node(node_id):
            words[run.run_id] = _sentence(question, run.run_id, taken)
    for run_id in taken:
        words.setdefault(run_id, _sentence(question, run_id, taken))
    return words


def _sentence(question: Question, run_id: str, taken: Mapping[str, Candidate]) -> str:
    run = question.state.runs[run_id]
    found = taken.get(run_id)
    if found is not None:
        return f"leaves: {_right(question, found)}, cost {found.cost_gpu_seconds:.0f} GPU-seconds"
    if is_leaving(run):
        return "is leaving already"
    if rule_for(question, run) is None:
        return f"spared: {_no_right(question, run)}"
    guarded = protection_from(question, run)
    return "spared: not needed" if guarded is None else f"spared: {guarded.sentence}"


def _right(question: Question, found: Candidate) -> str:
    """By what right the run is taken: a value says nothing about a reclaim."""
    preemptor = question.preemptor
    if found.rule == "reclaim":
        team = question.state.jobs[found.run.job_id].team
        return f"team {team} borrows its GPUs, and they are within the guarantee of team {preemptor.job.team}"
    return f"v {found.run.v} under {preemptor.v}"


def _no_right(question: Question, run: Run) -> str:
    """Why neither priority nor a reclaim lets the preemptor take the run."""
    preemptor = question.preemptor
    team = question.state.jobs[run.job_id].team
    by_value = f"v {run.v} is not far enough under {preemptor.v}"
    said = by_value if preemptor.by_priority else "the job may not evict by its value"
    if preemptor.by_reclaim and team != preemptor.job.team:
        return f"{said}, and team {team} does not borrow its GPUs"
    return said
