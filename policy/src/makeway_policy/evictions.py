"""Runs that leave for nobody's sake: by hand, or because their node is drained.

Order of checks of a preemption by hand (the first that fails is the reason shown):
 1. the job has a run that is not about to leave, and does not only hold GPUs
 2. its node is heard
 3. nothing protects it, or it is forced
A drained node gives up each run as soon as nothing protects it any more, forced all of them at once; a run on a node
that is not heard waits. A preemption by hand counts in the daily number, a drain does not.
"""

from dataclasses import replace

from makeway_policy import costs, protection, quota
from makeway_policy.choices import Choice, Evict, Victim
from makeway_policy.index import Index
from makeway_policy.model import Drain, LeaseState, Node, NodeHealth, Reason, Refusal, Run, RunState, StopCause, Trigger
from makeway_policy.moments import moment
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving


def preempt_by_hand(state: PoolState, policy: Policy, job_id: str, now: float, *, force: bool) -> Evict | Refusal:
    """Tell the job's run to stop, applied to `state`; or why not. `force` overrules protection."""
    run = state.run_of(job_id)
    if run is None or is_leaving(run) or run.state is RunState.EXITED:
        return Refusal(reason=Reason.NOT_RUNNING, sentence="it does not run, or is leaving already")
    if protection.is_hold(run):
        return Refusal(reason=Reason.NOT_RUNNING, sentence="it does not run yet; GPUs are kept for it")
    if not _is_heard(state, run):
        return Refusal(reason=Reason.NOT_RUNNING, sentence="nothing is heard of its node")
    guard = protection.of_run(state, policy, run, now, overrides=False)
    if guard is not None and not force:
        until = "" if guard.until is None else f", until {moment(guard.until)}"
        return Refusal(reason=Reason.PROTECTED, sentence=f"{guard.sentence}{until}", detail={"guard": guard.guard})
    overruled = "" if guard is None else f", although {guard.sentence}"
    return _evict(state, policy, run, Trigger.MANUAL, now, f"preempted by hand{overruled}")


def drain(index: Index, now: float) -> list[Choice]:
    """Look at every draining node that something changed for."""
    due = sorted(index.nodes.draining)
    index.nodes.draining.clear()
    choices: list[Choice] = []
    for node_id in due:
        node = index.state.nodes.get(node_id)
        if node is not None and node.drain is not Drain.NO:
            choices.extend(_empty(index, node, now))
    return choices


def _empty(index: Index, node: Node, now: float) -> list[Choice]:
    state, policy = index.state, index.policy
    staying = [
        run
        for run in state.runs_on_node(node.node_id)
        if not is_leaving(run) and not protection.is_hold(run) and run.state is not RunState.EXITED
    ]
    choices: list[Choice] = []
    moments: list[float] = []
    for run in sorted(staying, key=lambda run: (run.v, -run.decided_at, run.run_id)):
        guard = protection.of_run(state, policy, run, now, overrides=False)
        if not _is_heard(state, run) or (guard is not None and node.drain is not Drain.FORCED):
            changes_at = protection.protection_changes_at(state, policy, run, now)
            moments.extend([] if changes_at is None else [changes_at])
            continue
        overruled = "" if guard is None else f", although {guard.sentence}"
        sentence = f"node {node.node_id} is drained{overruled}"
        choices.append(_evict(state, policy, run, Trigger.DRAIN, now, sentence))
    index.nodes.wake_for_drain(node.node_id, min(moments, default=None))
    return choices


def _evict(state: PoolState, policy: Policy, run: Run, trigger: Trigger, now: float, sentence: str) -> Evict:
    job = state.jobs[run.job_id]
    grace = costs.grace_of(job, policy)
    counts = trigger is Trigger.MANUAL
    cause = StopCause.PREEMPTED if counts else StopCause.DRAINED
    victim = Victim(
        run_id=run.run_id, job_id=run.job_id, mode=quota.mode_of(job, policy), cause=cause, grace_seconds=grace,
        cost_gpu_seconds=costs.cost_of(job, run, policy, now), counts=counts,
    )  # fmt: skip
    preempted_at = (*job.preempted_at, now) if counts else job.preempted_at
    state.put_job(replace(job, preempted_at=preempted_at, down=True, last_end_preempted=counts))
    state.put_run(
        replace(
            run, lease_state=LeaseState.LEAVING, state=RunState.NOTICED, noticed_at=now, stop_cause=cause,
            grace_seconds=grace, leaves_by=now + grace,
        )
    )  # fmt: skip
    return Evict(job_id=run.job_id, victim=victim, trigger=trigger, explanation=sentence)


def _is_heard(state: PoolState, run: Run) -> bool:
    return all(state.nodes[node_id].health is NodeHealth.READY for node_id in run.node_ids)
