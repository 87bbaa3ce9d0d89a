"""What is kept of jobs: who waits where, who holds GPUs, who is due, and when time alone changes that."""

from collections.abc import Iterable

from makeway_policy import begin, overdue, priority
from makeway_policy.agenda import Agenda
from makeway_policy.model import Job, LeaseState, Reason, Run, RunState, StopCause
from makeway_policy.movers import Movers
from makeway_policy.queue import Bucket, WaitingQueue
from makeway_policy.reserving import Reservers
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving
from makeway_policy.timers import Timers

_TAKEN = frozenset({StopCause.HOLD_LOST, StopCause.PREEMPTED})
"""Why a hold is given up for another's sake: as it is decided, and as it is read back from what is stored."""


class KeptJobs:
    """All jobs of the pool.

    `holds` are the runs, by job, that have not started, `pending` the jobs among them whose run has no leases yet. To
    be looked at are `unsettled` holds, runs whose v may be another (`revalue`), jobs that are `overdue`, and `fresh`
    ones, which have not been told a reason.
    """

    def __init__(
        self,
        state: PoolState,
        policy: Policy,
        waiting: tuple[WaitingQueue, Agenda],
        holding: tuple[Reservers, Movers],
        timers: Timers,
    ) -> None:
        self._state = state
        self._policy = policy
        self._queue, self._agenda = waiting
        self._reservers, self._movers = holding
        self._timers = timers
        self.holds: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsettled: set[str] = set()
        self.revalue: set[str] = set()
        self.overdue: set[str] = set()
        self.fresh: dict[str, None] = {}

    def refresh(self, job_id: str, now: float) -> None:
        """Bring a job up to date; one that is gone leaves everything."""
        job = self._state.jobs.get(job_id)
        run = self._state.run_of(job_id)
        held = self.holds.pop(job_id, None)
        self._reservers.dispossessed.pop(job_id, None)
        if held is not None:
            self.pending.discard(job_id)
            self._movers.forget(job_id)
            self.wake_for_hold(held, None)
        stands_by = job is not None and (job.held or job.over)
        if job is None or run is not None or stands_by:
            self._leave_queue(job_id)
        if job is not None and (run is None or run.started_at is None):
            self._watch_overdue(job, now)
        if job is not None and run is not None:
            self._refresh_run(job, run, now)
        elif job is not None and not stands_by:
            self._refresh_waiting(job, now)

    def unsettle_on(self, node_ids: Iterable[str]) -> None:
        """Something on these nodes has changed: the holds there are to be looked at."""
        for node_id in node_ids:
            for run in self._state.runs_on_node(node_id):
                if run.job_id in self.holds:
                    self.unsettled.add(run.run_id)

    def _refresh_run(self, job: Job, run: Run, now: float) -> None:
        if self.worth_of(job, run) != run.v:
            self.revalue.add(run.run_id)
        if run.state in (RunState.PLANNED, RunState.STARTING) and run.started_at is None and not is_leaving(run):
            self.holds[job.job_id] = run.run_id
            if run.lease_state is LeaseState.PENDING:
                self.pending.add(job.job_id)
            if run.after:
                self._movers.note(job, run)
                if self._policy.move_holds:
                    # It is in the queue again while it moves, and comes forward there as it waits.
                    self._timers.set("job", job.job_id, priority.next_step_at(job, self._policy, now))
            self.unsettled.add(run.run_id)
        if run.started_at is None and run.lease_state is LeaseState.NEXT and run.stop_cause in _TAKEN:
            self._reservers.dispossessed[job.job_id] = None

    def _refresh_waiting(self, job: Job, now: float) -> None:
        moments = [priority.next_step_at(job, self._policy, now)]
        if job.no_victims_until > now:
            moments.append(job.no_victims_until)
        if job.begin_at is not None and job.begin_at > now:
            moments = [job.begin_at]
            self._leave_queue(job.job_id)
        else:
            headed = self._bucket_headed_by(job.job_id)
            bucket = self._queue.put(job, now)
            if bucket is not None and headed is not None:
                self._agenda.search_anew(headed)
            if bucket is not None and (bucket.blocked is None or bucket.head == job.job_id):
                self._agenda.judge_again(bucket)
        early = begin.is_early(job, now)
        if job.refusal is None or (job.refusal.reason is Reason.NOT_YET and not early):
            self.fresh[job.job_id] = None
        self._timers.set("job", job.job_id, min((at for at in moments if at is not None), default=None))

    def _watch_overdue(self, job: Job, now: float) -> None:
        due_at = overdue.due_at(job)
        if due_at is not None and due_at <= now:
            self.overdue.add(job.job_id)
        self._timers.set("overdue", job.job_id, due_at if due_at is not None and due_at > now else None)

    def _leave_queue(self, job_id: str) -> None:
        place = self._queue.place.get(job_id)
        if place is not None:
            bucket, headed = place[0], place[0].head == job_id
            self._queue.remove(job_id)
            if headed:
                self._agenda.search_anew(bucket)
        self.fresh.pop(job_id, None)
        self._timers.set("job", job_id, None)

    def _bucket_headed_by(self, job_id: str) -> Bucket | None:
        place = self._queue.place.get(job_id)
        return place[0] if place is not None and place[0].head == job_id else None

    def worth_of(self, job: Job, run: Run) -> int:
        """The v of a decided run: the job's base as it is now, and Δ if an aged job won it."""
        return priority.base(job, self._policy) + (self._policy.delta if run.promoted else 0)

    def wake_for_hold(self, run_id: str, at: float | None) -> None:
        """Wake for a run that has not started, at a moment; None takes that back."""
        self._timers.set("hold", run_id, at)

    def take_fresh(self) -> tuple[str, ...]:
        """The jobs that have not been told a reason yet, in order of arrival."""
        fresh = tuple(self.fresh)
        self.fresh.clear()
        return fresh
