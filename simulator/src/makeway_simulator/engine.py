"""makeway's own policy on a virtual clock: event-driven, deterministic, on the very state that the live scheduler has.

At each moment at which something happens:
 1. what is due is booked: ends, runs that have left, submissions, in this order
 2. saves that are complete by now are told to the state
 3. `makeway_policy.decide` chooses, and each choice is carried out: notices, starts, withdrawals
 4. a start that a choice or a leaving run made possible happens at the same moment; then 3 again until nothing changes
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from makeway_policy import lifecycle
from makeway_policy.choices import Choice, Evict, Expire, Grant, Preempt, Start, Stop, Victim, Withdraw
from makeway_policy.decide import decide
from makeway_policy.model import Gpu, Job, LeaseState, Mode, Node, Run, StopCause
from makeway_policy.state import PoolState

from makeway_simulator.book import Book, Live
from makeway_simulator.outcome import EndKind, JobOutcome
from makeway_simulator.physics import Course
from makeway_simulator.record import Moment, Preemption, Record, Segment
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.setting import Setting, shape_of
from makeway_simulator.trace import TraceJob

_VRAM_MIB = 81_920
_MOST_ROUNDS = 10_000


class Engine:
    """One replay. `run` may be called once."""

    def __init__(self, jobs: Sequence[TraceJob], setting: Setting) -> None:
        """`jobs` are ordered by submission."""
        self._jobs = jobs
        self._setting = setting
        # In virtual time no wake-up is ever missed: the policy's periodic safety net would only cost.
        self._policy = replace(setting.policy, recheck_seconds=math.inf)
        self._state = PoolState()
        self._books: dict[str, Book] = {}
        self._events: list[tuple[float, str]] = []
        self._live: dict[str, Live] = {}
        self._charged_at = 0.0
        self._saves: list[tuple[float, str]] = []
        self._coming = 0
        self._wake: float | None = None
        self._now = 0.0
        self._busy = 0
        self._record = Record(cluster=setting.cluster)
        for node in range(setting.cluster.nodes):
            self._add_node(node)
        for team in setting.teams:
            self._state.put_team(team)

    def run(self, progress: Callable[[int], None] | None = None, until: float = math.inf) -> Record:
        """Run until nothing can happen any more, or until a moment. Gives what came of it."""
        while True:
            following = self._next()
            if following is None or following > until:
                break
            self._now = following
            self._turn()
            if progress is not None:
                progress(len(self._record.outcomes))
        self._record.running = tuple(live.job_id for live in self._live.values())
        self._record.unfinished = len(self._books)
        self._record.refused = sum(1 for job in self._state.jobs.values() if job.unsatisfiable)
        return self._record

    def _next(self) -> float | None:
        moments = [self._events[0][0]] if self._events else []
        if self._coming < len(self._jobs):
            moments.append(self._jobs[self._coming].submitted_at)
        # With nobody waiting, a wake-up has nothing to decide.
        if self._wake is not None and len(self._books) > len(self._live):
            moments.append(self._wake)
        return max(self._now, min(moments)) if moments else None

    def _turn(self) -> None:
        running, coming = len(self._live), self._coming
        self._end_due()
        while self._coming < len(self._jobs) and self._jobs[self._coming].submitted_at <= self._now:
            self._submit(self._jobs[self._coming], self._coming + 1)
            self._coming += 1
        if self._setting.cost is Cost.PEER and (len(self._live) != running or self._coming != coming):
            self._charge_all()
        self._note_saves()
        for _ in range(_MOST_ROUNDS):
            decisions = decide(self._state, self._policy, self._now)
            self._wake = None if decisions.next_wake == math.inf else decisions.next_wake
            changed = [self._enact(choice) for choice in decisions.choices]
            if not (self._end_due() or any(changed)):
                break
        self._sample()

    def _end_due(self) -> bool:
        found = False
        while self._events and self._events[0][0] <= self._now:
            self._end(heapq.heappop(self._events)[1])
            found = True
        return found

    def _charge_all(self) -> None:
        """The peer's cost model: at every submission and end, each running job has lost its start-up time anew."""
        elapsed = self._now - self._charged_at
        self._charged_at = self._now
        for live in self._live.values():
            startup = self._books[live.job_id].job.startup_seconds
            lost = min(self._setting.physics.restore_seconds if startup is None else startup, elapsed)
            if live.leaving is None and lost:
                live.course = replace(live.course, ready_at=live.course.ready_at + lost)
                self._at(live.ends_at, live.run_id)

    # What happens

    def _submit(self, job: TraceJob, order: int) -> None:
        physics = self._setting.physics
        shape = shape_of(job.gpus, self._setting.cluster)
        class_name = job.class_name or self._policy.default_class
        rules = self._policy.classes.get(class_name) or self._policy.classes[self._policy.default_class]
        mode = rules.mode if physics.mode is None or rules.mode is Mode.OFF else physics.mode
        asked = Job(
            job_id=job.job_id,
            order=order,
            team=job.team,
            class_name=class_name,
            submitted_at=job.submitted_at,
            queued_since=job.submitted_at,
            shape=shape,
            own_priority=job.priority,
            mode=mode,
            grace_seconds=physics.grace_seconds,
            time_limit_seconds=job.time_limit_seconds,
            restart_seconds=job.startup_seconds if job.startup_seconds is not None else physics.restore_seconds,
        )
        self._books[job.job_id] = Book(job=job, mode=mode, gpus=shape.gpus * shape.members)
        self._state.put_job(asked)

    def _start(self, run: Run) -> None:
        lifecycle.run_begun(self._state, run.run_id, self._now)
        lifecycle.run_started(self._state, run.run_id, self._now)
        book = self._books[run.job_id]
        if book.first_started_at is None:
            book.first_started_at = self._now
        course = self._course(book, resumed=run.number > 1)
        gpus = tuple(lease.gpu_id for lease in run.leases)
        live = Live(
            run_id=run.run_id, job_id=run.job_id, number=run.number, started_at=self._now, gpus=gpus, course=course
        )
        book.live = self._live[run.run_id] = live
        self._busy += book.gpus
        if book.job.time_limit_seconds is not None:
            used = self._state.jobs[run.job_id].used_seconds
            live.limit_at = self._now + max(0.0, book.job.time_limit_seconds - used)
        self._at(live.ends_at, run.run_id)
        save = course.next_save_at(self._now)
        if math.isfinite(save):
            heapq.heappush(self._saves, (save, run.run_id))

    def _course(self, book: Book, *, resumed: bool) -> Course:
        physics = self._setting.physics
        startup = book.job.startup_seconds
        if self._setting.cost is Cost.PEER:
            startup = 0.0
        elif startup is None:
            startup = physics.restore_seconds if resumed else 0.0
        saves = book.mode is Mode.CHECKPOINT and physics.checkpoint_interval_seconds
        return Course(
            ready_at=self._now + startup,
            saved_seconds=book.saved,
            work_seconds=book.job.work_seconds,
            interval_seconds=physics.checkpoint_interval_seconds or math.inf if saves else math.inf,
            save_seconds=physics.save_seconds,
            mode=book.mode,
            stop_seconds=physics.stop_seconds,
        )

    def _end(self, run_id: str) -> None:
        """A run is gone at its time: it finished, or it has left. What does not fit the book is of the past."""
        run = self._state.runs.get(run_id)
        book = self._books.get(run.job_id) if run is not None else None
        live = book.live if book is not None else None
        if run is None or book is None or live is None or live.run_id != run_id:
            return
        if live.ends_at > self._now:
            return
        if live.leaving is None and live.course.finishes_at > live.limit_at:
            live.kind = EndKind.TIMED_OUT
        self._segment(book, live)
        book.live = None
        del self._live[run_id]
        self._busy -= book.gpus
        followers = lifecycle.run_released(self._state, run_id, self._now)
        if live.leaving is None or live.kind in (EndKind.CANCELLED, EndKind.TIMED_OUT):
            self._close(book, live.kind)
        else:
            book.saved = live.leaving.saved_seconds
        for follower in followers:
            self._start_if_live(follower)

    def _close(self, book: Book, kind: EndKind) -> None:
        job = book.job
        del self._books[job.job_id]
        self._state.remove_job(job.job_id)
        self._record.ended[kind] += 1
        useful = job.work_seconds * book.gpus if kind is EndKind.FINISHED else 0.0
        self._record.outcomes.append(
            JobOutcome(
                job_id=job.job_id,
                class_name=job.class_name or self._policy.default_class,
                gpus=book.gpus,
                submitted_at=job.submitted_at,
                started_at=self._now if book.first_started_at is None else book.first_started_at,
                finished_at=self._now,
                preemptions=book.preemptions,
                held_gpu_seconds=book.held,
                lost_gpu_seconds=max(0.0, book.held - useful),
                kind=kind,
            )
        )

    def _segment(self, book: Book, live: Live) -> None:
        book.held += (self._now - live.started_at) * book.gpus
        self._record.segments.append(
            Segment(
                job_id=book.job.job_id,
                run=live.number,
                gpus=live.gpus,
                started_at=live.started_at,
                ready_at=min(live.course.ready_at, self._now),
                ended_at=self._now,
                kind=live.kind,
                resumed_seconds=live.course.saved_seconds,
                saved_seconds=live.leaving.saved_seconds if live.leaving else live.course.done_by(self._now),
            )
        )

    def _note_saves(self) -> None:
        while self._saves and self._saves[0][0] <= self._now:
            _, run_id = heapq.heappop(self._saves)
            run = self._state.runs.get(run_id)
            book = self._books.get(run.job_id) if run is not None else None
            if book is None or book.live is None or book.live.run_id != run_id or book.live.leaving is not None:
                continue
            course = book.live.course
            saved_at = course.saved_at(self._now)
            if saved_at is not None:
                lifecycle.acked(self._state, run_id, saved_at, course.saved_by(self._now) / course.work_seconds)
            save = course.next_save_at(self._now)
            if math.isfinite(save):
                heapq.heappush(self._saves, (save, run_id))

    # What is chosen

    def _enact(self, choice: Choice) -> bool:
        """Carry out one choice; True where it may let something else happen at this very moment."""
        if isinstance(choice, (Start, Grant)):
            # A start frees nothing: whatever it changes can wait for the next moment's decision.
            self._start_if_live(self._state.runs.get(choice.run.run_id))
            return False
        if isinstance(choice, Preempt):
            self._preempt(choice)
            return True
        if isinstance(choice, Evict):
            self._books[choice.job_id].preemptions += choice.victim.counts
            self._stop(choice.victim.run_id, choice.victim.grace_seconds, EndKind.PREEMPTED)
            return True
        if isinstance(choice, Withdraw):
            return self._release_unstarted(choice.run_id)
        if isinstance(choice, Stop):
            self._stop(choice.run_id, choice.grace_seconds, _KINDS.get(choice.cause, EndKind.PREEMPTED))
            return True
        if isinstance(choice, Expire):
            self._close(self._books[choice.job_id], EndKind.EXPIRED)
            return True
        return False

    def _preempt(self, choice: Preempt) -> None:
        for victim in choice.victims:
            self._notice(victim, choice)
        for run_id in choice.stopped_holds:
            self._release_unstarted(run_id)

    def _notice(self, victim: Victim, choice: Preempt) -> None:
        book = self._books[victim.job_id]
        book.preemptions += 1
        self._record.preemptions.append(
            Preemption(
                at=self._now,
                victim=victim.job_id,
                preemptor=choice.job_id,
                mode=victim.mode,
                trigger=choice.trigger,
                cost_gpu_seconds=victim.cost_gpu_seconds,
            )
        )
        kind = EndKind.CANCELLED if victim.mode is Mode.CANCEL else EndKind.PREEMPTED
        self._stop(victim.run_id, victim.grace_seconds, kind)

    def _stop(self, run_id: str, grace_seconds: float, kind: EndKind) -> None:
        run = self._state.runs.get(run_id)
        book = self._books.get(run.job_id) if run is not None else None
        if book is None or book.live is None or book.live.run_id != run_id:
            self._release_unstarted(run_id)
            return
        live = book.live
        if live.leaving is None:
            live.leaving = live.course.leave(self._now, grace_seconds)
            live.kind = kind
            self._at(live.leaving.at, run_id)

    def _start_if_live(self, run: Run | None) -> bool:
        if run is None or run.started_at is not None or run.after or run.lease_state is not LeaseState.LIVE:
            return False
        self._start(run)
        return True

    def _release_unstarted(self, run_id: str) -> bool:
        run = self._state.runs.get(run_id)
        if run is None or run.started_at is not None:
            return False
        for follower in lifecycle.run_released(self._state, run_id, self._now):
            self._start_if_live(follower)
        return True

    def _at(self, moment: float, run_id: str) -> None:
        heapq.heappush(self._events, (moment, run_id))

    def _sample(self) -> None:
        moment = Moment(at=self._now, waiting=len(self._books) - len(self._live), busy_gpus=self._busy)
        moments = self._record.moments
        if moments and (moments[-1].waiting, moments[-1].busy_gpus) == (moment.waiting, moment.busy_gpus):
            return
        moments.append(moment)

    def _add_node(self, number: int) -> None:
        node_id = f"node-{number:04d}"
        self._state.put_node(Node(node_id=node_id))
        for index in range(self._setting.cluster.gpus_per_node):
            gpu_id = f"{node_id}/{index}"
            self._state.put_gpu(
                Gpu(gpu_id=gpu_id, node_id=node_id, index=index, type_name="simulated", vram_mib=_VRAM_MIB)
            )


_KINDS = {
    StopCause.TIME_LIMIT: EndKind.TIMED_OUT,
    StopCause.CANCELLED: EndKind.CANCELLED,
}
