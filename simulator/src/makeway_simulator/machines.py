"""The nodes of a replay: they start runs, stop them, and tell the policy's state when they are gone."""

import heapq
import math
from dataclasses import replace

from makeway_policy import costs, lifecycle
from makeway_policy.model import GpuHealth, LeaseState, NodeHealth, Run, RunState, StopCause
from makeway_policy.priority import class_of
from makeway_policy.retries import Cause, Ended, Following, Outcome, Retries, after_end, to_avoid
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

from makeway_simulator.accounts import Accounts
from makeway_simulator.book import Book, Live, course_of
from makeway_simulator.network import Network, Notice
from makeway_simulator.outcome import EndKind
from makeway_simulator.setting import Setting

_KINDS = {StopCause.TIME_LIMIT: EndKind.TIMED_OUT, StopCause.CANCELLED: EndKind.CANCELLED}


class Machines:
    """Runs on their GPUs, the books of their jobs, and when each is due. The engine moves `now`."""

    def __init__(self, setting: Setting, policy: Policy) -> None:
        self.state = PoolState()
        self.policy = policy
        self.accounts = Accounts(setting.cluster)
        self.now = 0.0
        self.books: dict[str, Book] = {}
        self.live: dict[str, Live] = {}
        self.busy = 0
        self._setting = setting
        self._events: list[tuple[float, str]] = []
        self._saves: list[tuple[float, str]] = []
        self._starting: dict[str, float] = {}
        self._stuck: dict[str, float] = {}
        self._network = Network(setting.silence_seconds)
        self._charged_at = 0.0

    # When something is due

    def next_at(self) -> float | None:
        """When the next start is complete, run gone or node silent; None if none will."""
        moments = [self._events[0][0] if self._events else None, self._network.next_at(self.now)]
        return min((at for at in moments if at is not None), default=None)

    def catch_up(self) -> bool:
        """Carry out what is due now. Returns whether anything was."""
        found = self._look_at_nodes()
        while self._events and self._events[0][0] <= self.now:
            run_id = heapq.heappop(self._events)[1]
            if self._starting.get(run_id, math.inf) <= self.now:
                self._start(self.state.runs[run_id])
            elif self._stuck.get(run_id, math.inf) <= self.now:
                self._quarantine(run_id)
            else:
                self._end(run_id)
            found = True
        return found

    def note_saves(self) -> None:
        """Tell the state of saves that are complete by now."""
        while self._saves and self._saves[0][0] <= self.now:
            _, run_id = heapq.heappop(self._saves)
            found = self._running(run_id)
            if found is None or found[1].leaving is not None:
                continue
            course = found[1].course
            saved_at = course.saved_at(self.now)
            if saved_at is not None:
                progress = course.saved_by(self.now) / course.work_seconds
                lifecycle.acked(self.state, run_id, saved_at, progress)
            self._save_at(course.next_save_at(self.now), run_id)

    def charge_all(self) -> None:
        """The peer's cost model: at every submission and end, each running job has lost its start-up time anew."""
        elapsed = self.now - self._charged_at
        self._charged_at = self.now
        for live in self.live.values():
            startup = self.books[live.job_id].job.startup_seconds
            lost = min(self._setting.physics.restore_seconds if startup is None else startup, elapsed)
            if live.leaving is None and lost:
                live.course = replace(live.course, ready_at=live.course.ready_at + lost)
                self._at(live.ends_at, live.run_id)

    # Starts

    def start_if_live(self, run: Run | None) -> bool:
        """Start a run that nothing is in the way of any more. Returns whether it did."""
        if run is None or run.begun_at is not None or run.after or run.lease_state is not LeaseState.LIVE:
            return False
        if any(self.state.gpus[lease.gpu_id].health in _UNUSABLE for lease in run.leases):
            return False
        if self._network.cut_off(run.node_ids) is not None:
            return False
        lifecycle.run_begun(self.state, run.run_id, self.now)
        delay = max((self._setting.start_seconds.get(node_id, 0.0) for node_id in run.node_ids), default=0.0)
        if delay:
            self._starting[run.run_id] = self.now + delay
            self._at(self.now + delay, run.run_id)
        else:
            self._start(run)
        return True

    def _start(self, run: Run) -> None:
        self._starting.pop(run.run_id, None)
        lifecycle.run_started(self.state, run.run_id, self.now)
        book = self.books[run.job_id]
        if book.first_started_at is None:
            book.first_started_at = self.now
        course = course_of(book, self._setting, self.now, resumed=run.number > 1)
        gpus = tuple(lease.gpu_id for lease in run.leases)
        live = Live(
            run_id=run.run_id, job_id=run.job_id, number=run.number, started_at=self.now, gpus=gpus, course=course
        )
        book.live = self.live[run.run_id] = live
        self.busy += book.gpus
        if book.job.time_limit_seconds is not None:
            used = self.state.jobs[run.job_id].used_seconds
            live.limit_at = self.now + max(0.0, book.job.time_limit_seconds - used)
        self._at(live.ends_at, run.run_id)
        self._save_at(course.next_save_at(self.now), run.run_id)

    # Stops and ends

    def stop(self, run_id: str, grace_seconds: float, cause: StopCause, kind: EndKind | None = None) -> None:
        """Give a run its notice; one that has not started is gone. A later cause only says what the end will mean."""
        found = self._running(run_id)
        if found is None:
            self._stop_unstarted(run_id, cause)
            return
        live = found[1]
        node_id = self._network.cut_off(self.state.runs[run_id].node_ids)
        if node_id is not None:
            notice = Notice(run_id=run_id, grace_seconds=grace_seconds, cause=cause, kind=kind)
            self._network.keep_notice(node_id, notice)
            return
        live.kind = kind or _KINDS.get(cause, EndKind.PREEMPTED)
        if live.leaving is None:
            live.noticed_at = self.now
            live.leaving = live.course.leave(self.now, grace_seconds)
            self._at(live.leaving.at, run_id)
            if live.leaving.at == math.inf:
                self._stuck[run_id] = self.now + grace_seconds
                self._at(self.now + grace_seconds, run_id)

    def stop_for_itself(self, run_id: str, cause: StopCause) -> None:
        """Stop a run that nobody was preferred to (cancelled, out of time), with its job's grace."""
        run = self.state.runs[run_id]
        job = self.state.jobs[run.job_id]
        grace = class_of(job, self.policy).grace_seconds if job.grace_seconds is None else job.grace_seconds
        if run.started_at is not None:
            leaves_by = self.now + grace if run.leaves_by is None else min(run.leaves_by, self.now + grace)
            self.state.put_run(
                replace(
                    run, lease_state=LeaseState.LEAVING, state=RunState.NOTICED, stop_cause=cause, leaves_by=leaves_by,
                    noticed_at=self.now if run.noticed_at is None else run.noticed_at, grace_seconds=grace,
                )
            )  # fmt: skip
        self.stop(run_id, grace, cause)

    def _quarantine(self, run_id: str) -> None:
        """The process is still there after its kill: its GPUs are not to be used."""
        del self._stuck[run_id]
        for lease in self.state.runs[run_id].leases:
            self.state.put_gpu(replace(self.state.gpus[lease.gpu_id], health=GpuHealth.QUARANTINED))

    def release_unstarted(self, run_id: str) -> bool:
        """Take a run back that has no process yet. Returns whether there was one."""
        run = self.state.runs.get(run_id)
        if run is None or run.started_at is not None:
            return False
        self._starting.pop(run_id, None)
        for follower in lifecycle.run_released(self.state, run_id, self.now):
            self.start_if_live(follower)
        return True

    def _stop_unstarted(self, run_id: str, cause: StopCause) -> None:
        """Take a run back that has no process yet; a start that took too long counts, and is no loss of a run."""
        run = self.state.runs.get(run_id)
        book = self.books.get(run.job_id) if run is not None else None
        if not self.release_unstarted(run_id) or run is None or book is None or cause is not StopCause.OURS:
            return
        ended = Ended(cause=Cause.OURS, retries_used=book.retries_used, failures_in_a_row=book.failures_in_a_row)
        self._follow(book, after_end(ended, Retries(), self.policy), EndKind.FAILED, nodes=run.node_ids)

    def close(self, book: Book, kind: EndKind) -> None:
        """The job has come to its end."""
        job_id = book.job.job_id
        class_name = self.state.jobs[job_id].class_name if book.job.detail else book.job.class_name
        del self.books[job_id]
        self.state.remove_job(job_id)
        self.accounts.job_ended(book, kind, class_name or self.policy.default_class, self.now)

    def _end(self, run_id: str) -> None:
        """A run is gone at its time: it finished, or it has left. What does not fit the book is of the past."""
        found = self._running(run_id)
        if found is None or found[1].ends_at > self.now:
            return
        book, live = found
        node_id = self._network.cut_off(self.state.runs[run_id].node_ids)
        if node_id is not None:
            self._network.keep_end(node_id, run_id)
            return
        if live.leaving is None and live.course.finishes_at > live.limit_at:
            if book.job.detail is not None:
                self.stop_for_itself(run_id, StopCause.TIME_LIMIT)
                return
            live.kind = EndKind.TIMED_OUT
        self._settle(book, live)

    def _settle(self, book: Book, live: Live) -> None:
        detail = book.job.detail
        done = live.leaving.done if live.leaving is not None else live.kind is EndKind.FINISHED
        if done:
            live.kind = EndKind.FINISHED
        if done and detail is not None and detail.process.exit_code and live.leaving is None:
            live.kind = EndKind.FAILED
        followers = self._release(book, live)
        if live.kind is EndKind.PREEMPTED:
            book.saved = live.leaving.saved_seconds if live.leaving is not None else book.saved
        elif live.kind is EndKind.FAILED and detail is not None:
            ended = Ended(
                cause=Cause.FAILED, exit_code=detail.process.exit_code, ran_seconds=self.now - live.started_at,
                retries_used=book.retries_used,
            )  # fmt: skip
            self._follow(book, after_end(ended, detail.retries, self.policy), EndKind.FAILED)
        else:
            self.close(book, live.kind)
        for follower in followers:
            self.start_if_live(follower)

    def _release(self, book: Book, live: Live) -> tuple[Run, ...]:
        self.accounts.run_ended(book, live, self.now)
        book.live = None
        del self.live[live.run_id]
        self.busy -= book.gpus
        return lifecycle.run_released(self.state, live.run_id, self.now)

    def _follow(
        self, book: Book, following: Following, kind: EndKind, *, nodes: tuple[str, ...] = (), lost: bool = False
    ) -> None:
        """What the policy says becomes of a job whose run failed, was lost or did not start, on these nodes."""
        book.retries_used, book.failures_in_a_row = following.retries_used, following.failures_in_a_row
        if following.outcome not in (Outcome.REQUEUE, Outcome.HELD):
            self.close(book, kind)
            return
        job = self.state.jobs[book.job.job_id]
        self.state.put_job(
            replace(
                job,
                begin_at=self.now + following.delay_seconds if following.delay_seconds else job.begin_at,
                backs_off=job.backs_off or following.delay_seconds > 0,
                held=following.outcome is Outcome.HELD,
                avoidance=to_avoid(job.avoidance, following, self.now, nodes=nodes),
                down=lost or (job.down and bool(nodes)),
            )
        )

    # Nodes

    def silence(self, node_id: str) -> None:
        """A node is not heard any more; its runs go on."""
        self._network.cut(node_id, self.now)
        self._look_at_nodes()

    def return_of(self, node_id: str) -> None:
        """A node is heard again: it tells what has ended, and is told what was decided meanwhile.

        What runs there and was replaced has to stop; its result counts for nothing.
        """
        self.state.put_node(replace(self.state.nodes[node_id], health=NodeHealth.READY))
        back, taken = self._network.restore(node_id, self.now)
        for gpu_id in taken:
            self.state.put_gpu(replace(self.state.gpus[gpu_id], health=GpuHealth.QUARANTINED))
        for notice in back.notices:
            self.stop(notice.run_id, notice.grace_seconds, notice.cause, notice.kind)
        for run_id in back.ends:
            self._at(self.now, run_id)
        for run in self.state.runs_on_node(node_id):
            self.start_if_live(run)

    def _look_at_nodes(self) -> bool:
        """See which nodes count as silent by now, and which cards are empty again. Returns whether anything changed."""
        before = self.state.hardware_version
        for node_id in self._network.silent(self.now):
            node = self.state.nodes[node_id]
            if node.health is NodeHealth.READY:
                self.state.put_node(replace(node, health=NodeHealth.UNKNOWN))
        for gpu_id in self._network.emptied(self.now):
            self.state.put_gpu(replace(self.state.gpus[gpu_id], health=GpuHealth.AVAILABLE))
        return self.state.hardware_version != before

    def lose(self, node_id: str) -> None:
        """A node is declared dead: what ran there is lost, and goes on elsewhere with what it had done."""
        self.state.put_node(replace(self.state.nodes[node_id], health=NodeHealth.DEAD))
        for run in self.state.runs_on_node(node_id):
            found = self._running(run.run_id)
            if found is None:
                self.release_unstarted(run.run_id)
                continue
            book, live = found
            grace = costs.grace_of(self.state.jobs[run.job_id], self.policy)
            self._network.leave_behind(node_id, live.gpus, live.course.leave(self.now, grace).at - self.now)
            live.kind = EndKind.LOST
            book.saved = live.course.done_by(self.now)
            followers = self._release(book, live)
            ended = Ended(
                cause=Cause.NODE_LOST, ran_seconds=self.now - live.started_at, retries_used=book.retries_used,
                failures_in_a_row=book.failures_in_a_row,
            )  # fmt: skip
            retries = book.job.detail.retries if book.job.detail is not None else None
            if retries is not None:
                self._follow(book, after_end(ended, retries, self.policy), EndKind.FAILED, nodes=(node_id,), lost=True)
            for follower in followers:
                self.start_if_live(follower)

    # Inner

    def _running(self, run_id: str) -> tuple[Book, Live] | None:
        run = self.state.runs.get(run_id)
        book = self.books.get(run.job_id) if run is not None else None
        if book is None or book.live is None or book.live.run_id != run_id:
            return None
        return book, book.live

    def _at(self, moment: float, run_id: str) -> None:
        if moment < math.inf:
            heapq.heappush(self._events, (moment, run_id))

    def _save_at(self, moment: float, run_id: str) -> None:
        if moment < math.inf:
            heapq.heappush(self._saves, (moment, run_id))


_UNUSABLE = frozenset({GpuHealth.QUARANTINED, GpuHealth.LOST})
