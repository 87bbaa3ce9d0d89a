"""makeway's own policy on a virtual clock: event-driven, deterministic, on the very state that the live scheduler has.

At each moment at which something happens:
 1. what is due is booked: ends, runs that have left, submissions, interventions, in this order
 2. saves that are complete by now are told to the state
 3. `makeway_policy.decide` chooses, and each choice is carried out: notices, starts, withdrawals
 4. a start that a choice or a leaving run made possible happens at the same moment; then 3 again until nothing changes
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from makeway_policy.checks import refuse_submit
from makeway_policy.choices import Choice, Evict, Expire, Grant, Preempt, Start, Stop, Withdraw
from makeway_policy.decide import decide
from makeway_policy.evictions import preempt_by_hand
from makeway_policy.model import Job, LeaseState, Mode, Refusal, Run, StopCause
from makeway_policy.priority import base
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

from makeway_simulator.accounts import segment
from makeway_simulator.book import Book
from makeway_simulator.machines import Machines
from makeway_simulator.outcome import EndKind
from makeway_simulator.record import Record
from makeway_simulator.restart import restarted
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.setting import Setting, shape_of
from makeway_simulator.trace import Detail, TraceJob

_MOST_ROUNDS = 10_000

Watch = Callable[[float, PoolState], None]
"""Is shown the time and the state after every round of decisions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervention:
    """What somebody does at a moment."""

    at: float
    act: Callable[["Engine"], None]


class Engine:
    """One replay. `run` may be called once; interventions may use the rest of what is public here."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        setting: Setting,
        interventions: Sequence[Intervention] = (),
        watch: Watch | None = None,
    ) -> None:
        """`jobs` are ordered by submission, `interventions` by time."""
        self._jobs = jobs
        self._interventions = interventions
        self._watch = watch
        self._setting = setting
        self._machines = Machines(setting, _without_recheck(setting.policy))
        self._coming = 0
        self._next_intervention = 0
        self._wake: float | None = None
        self._paused = False
        nodes, gpus = setting.hardware()
        for node in nodes:
            self.state.put_node(node)
        for gpu in gpus:
            self.state.put_gpu(gpu)
        for team in setting.teams:
            self.state.put_team(team)
        for group in setting.groups:
            self.state.put_group(group)

    @property
    def state(self) -> PoolState:
        """What the policy decides on."""
        return self._machines.state

    @property
    def machines(self) -> Machines:
        """The nodes."""
        return self._machines

    def run(self, progress: Callable[[int], None] | None = None, until: float = math.inf) -> Record:
        """Run until nothing can happen any more, or until a moment. Gives what came of it."""
        machines, record = self._machines, self._machines.accounts.record
        while True:
            following = self._next()
            if following is None or following > until:
                break
            machines.now = following
            self._turn()
            if progress is not None:
                progress(len(record.outcomes))
        end = until if until < math.inf else machines.now
        record.open = tuple(segment(machines.books[live.job_id], live, end) for live in machines.live.values())
        record.running = tuple(live.job_id for live in machines.live.values())
        record.unfinished = len(machines.books)
        record.refused = sum(1 for job in self.state.jobs.values() if job.unsatisfiable)
        return record

    # What people do

    def cancel(self, job_id: str) -> bool:
        """End a job, at once or with its grace. Returns whether it had not ended before."""
        machines = self._machines
        book = machines.books.get(job_id)
        if book is None:
            return False
        run = self.state.run_of(job_id)
        if run is not None and run.started_at is not None:
            machines.stop_for_itself(run.run_id, StopCause.CANCELLED)
            return True
        if run is not None:
            machines.release_unstarted(run.run_id)
        machines.close(book, EndKind.CANCELLED)
        return True

    def preempt(self, job_id: str, *, force: bool) -> Refusal | None:
        """Preempt a job by hand. Returns why not, if not."""
        chosen = preempt_by_hand(self.state, self._machines.policy, job_id, self._machines.now, force=force)
        if isinstance(chosen, Refusal):
            return chosen
        self._enact(chosen)
        return None

    def apply_policy(self, policy: Policy) -> None:
        """Decide by another policy from here on."""
        self._machines.policy = _without_recheck(policy)

    def pause(self) -> None:
        """The scheduler is gone: nothing is decided, while nodes and submits go on."""
        self._paused = True

    def resume(self) -> None:
        """A new scheduler is there, which knows what is stored."""
        self._paused = False
        self._machines.state = restarted(self.state)

    # The loop

    def _next(self) -> float | None:
        due = self._machines.next_at()
        moments = [due] if due is not None else []
        if self._coming < len(self._jobs):
            moments.append(self._jobs[self._coming].submitted_at)
        if self._next_intervention < len(self._interventions):
            moments.append(self._interventions[self._next_intervention].at)
        # With nobody waiting, a wake-up has nothing to decide.
        if self._wake is not None and len(self._machines.books) > len(self._machines.live):
            moments.append(self._wake)
        return max(self._machines.now, min(moments)) if moments else None

    def _turn(self) -> None:
        machines = self._machines
        running, coming = len(machines.live), self._coming
        machines.catch_up()
        while self._coming < len(self._jobs) and self._jobs[self._coming].submitted_at <= machines.now:
            self._submit(self._jobs[self._coming], self._coming + 1)
            self._coming += 1
        self._intervene()
        if self._setting.cost is Cost.PEER and (len(machines.live) != running or self._coming != coming):
            machines.charge_all()
        machines.note_saves()
        self._wake = None
        if not self._paused:
            self._decide()
        if self._watch is not None:
            self._watch(machines.now, self.state)
        machines.accounts.sample(machines.now, len(machines.books) - len(machines.live), machines.busy)

    def _decide(self) -> None:
        machines = self._machines
        for _ in range(_MOST_ROUNDS):
            decisions = decide(self.state, machines.policy, machines.now)
            self._wake = None if decisions.next_wake == math.inf else decisions.next_wake
            changed = [self._enact(choice) for choice in decisions.choices]
            if self._watch is not None:
                self._watch(machines.now, self.state)
            if not (machines.catch_up() or any(changed)):
                break

    def _intervene(self) -> None:
        while self._next_intervention < len(self._interventions):
            following = self._interventions[self._next_intervention]
            if following.at > self._machines.now:
                break
            self._next_intervention += 1
            following.act(self)

    def _submit(self, job: TraceJob, order: int) -> None:
        machines = self._machines
        asked = self._asked(job, order)
        if job.detail is not None:
            refusal = refuse_submit(self.state, machines.policy, asked, machines.now)
            if refusal is not None:
                machines.accounts.turned_away(job, refusal)
                return
        mode = asked.mode or machines.policy.classes[machines.policy.default_class].mode
        machines.books[job.job_id] = Book(job=job, mode=mode, gpus=asked.shape.gpus * asked.shape.members)
        self.state.put_job(asked)
        if job.detail is not None and job.detail.placed:
            self._load(asked, job.detail)

    def _asked(self, job: TraceJob, order: int) -> Job:
        policy, physics = self._machines.policy, self._setting.physics
        if job.detail is not None:
            return replace(job.detail.asked, order=order, submitted_at=job.submitted_at, queued_since=job.submitted_at)
        class_name = job.class_name or policy.default_class
        rules = policy.classes.get(class_name) or policy.classes[policy.default_class]
        return Job(
            job_id=job.job_id,
            order=order,
            team=job.team,
            class_name=class_name,
            submitted_at=job.submitted_at,
            queued_since=job.submitted_at,
            shape=shape_of(job.gpus, self._setting.cluster),
            own_priority=job.priority,
            mode=rules.mode if physics.mode is None or rules.mode is Mode.OFF else physics.mode,
            grace_seconds=physics.grace_seconds,
            time_limit_seconds=job.time_limit_seconds,
            restart_seconds=job.startup_seconds if job.startup_seconds is not None else physics.restore_seconds,
        )

    def _load(self, job: Job, detail: Detail) -> None:
        """A job that runs already when it comes: its placement is given, not decided."""
        run = Run(
            run_id=f"{job.job_id}.1", job_id=job.job_id, number=1, members=detail.placed, lease_state=LeaseState.LIVE,
            v=base(job, self._machines.policy), decided_at=self._machines.now, empty_since=self._machines.now,
        )  # fmt: skip
        self.state.put_job(replace(job, runs=1))
        self.state.put_run(run)
        self._machines.start_if_live(run)

    # What is chosen

    def _enact(self, choice: Choice) -> bool:
        """Carry out one choice; True where it may let something else happen at this very moment."""
        machines = self._machines
        if isinstance(choice, (Start, Grant)):
            # A start frees nothing: whatever it changes can wait for the next moment's decision.
            machines.start_if_live(self.state.runs.get(choice.run.run_id))
            return False
        if isinstance(choice, Preempt):
            self._preempt(choice)
            return True
        if isinstance(choice, Evict):
            machines.books[choice.job_id].preemptions += choice.victim.counts
            machines.stop(choice.victim.run_id, choice.victim.grace_seconds, choice.victim.cause, EndKind.PREEMPTED)
            return True
        if isinstance(choice, Withdraw):
            if choice.cause is StopCause.HOLD_EXPIRED:
                machines.accounts.hold_lost(choice.run_id, machines.now)
            return machines.release_unstarted(choice.run_id)
        if isinstance(choice, Stop):
            machines.stop(choice.run_id, choice.grace_seconds, choice.cause)
            return True
        if isinstance(choice, Expire):
            machines.close(machines.books[choice.job_id], EndKind.EXPIRED)
            return True
        return False

    def _preempt(self, choice: Preempt) -> None:
        machines = self._machines
        for victim in choice.victims:
            machines.accounts.evicted(machines.books[victim.job_id], victim, choice, machines.now)
            kind = EndKind.CANCELLED if victim.mode is Mode.CANCEL else EndKind.PREEMPTED
            machines.stop(victim.run_id, victim.grace_seconds, victim.cause, kind)
        for run_id in choice.stopped_holds:
            machines.accounts.hold_lost(run_id, machines.now)
            machines.release_unstarted(run_id)


def _without_recheck(policy: Policy) -> Policy:
    """In virtual time no wake-up is ever missed: the policy's periodic safety net would only cost."""
    return replace(policy, recheck_seconds=math.inf)
