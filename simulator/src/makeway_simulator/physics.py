"""What runs cost on real machines: starting, saving, restoring, leaving."""

import math
from dataclasses import dataclass

from makeway_policy.model import Mode


@dataclass(frozen=True, kw_only=True, slots=True)
class Physics:
    """Figures of the virtual machines, in seconds.

    Saving stops the work for `save_seconds`: every `checkpoint_interval_seconds` of work (None: only at a notice), and
    at a notice where the grace period suffices; the other modes wind down for `stop_seconds`, within their grace.
    `restore_seconds` is what a resumed run pays before it works, where the trace does not say itself what a start
    costs. `grace_seconds` overrides each job's own, `mode` that of every job whose class may be preempted at all
    (None: they do not).
    """

    checkpoint_interval_seconds: float | None = None
    save_seconds: float = 0.0
    stop_seconds: float = 0.0
    restore_seconds: float = 0.0
    grace_seconds: float | None = None
    mode: Mode | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving:
    """When a noticed run is gone, and how much of the job's work is safe then.

    `forced`: it did not leave by itself. `done`: it ends as a job that has declared itself done.
    """

    at: float
    saved_seconds: float
    forced: bool = False
    done: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """How one job's process behaves where that is given: it works on under notice, and what it did is never lost.

    After a notice it leaves in `leaves_after_seconds` (None: with the end of its grace; inf: never by itself), with
    `declares_done` as one whose work is done. An `unkillable` one stays even then. `exit_code` is that of its own end.
    """

    leaves_after_seconds: float | None = None
    declares_done: bool = False
    unkillable: bool = False
    exit_code: int = 0

    def leave(self, course: "Course", now: float, grace_seconds: float) -> Leaving:
        """What follows a notice."""
        wanted = grace_seconds if self.leaves_after_seconds is None else self.leaves_after_seconds
        at = now + min(wanted, grace_seconds)
        if course.finishes_at <= at:
            return Leaving(at=course.finishes_at, saved_seconds=course.work_seconds, done=True)
        if wanted > grace_seconds:
            at = math.inf if self.unkillable else at
            return Leaving(at=at, saved_seconds=course.done_by(at), forced=True)
        return Leaving(at=at, saved_seconds=course.done_by(at), done=self.declares_done)


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """One run as it would go undisturbed: it works from `ready_at`, with `saved_seconds` of `work_seconds` done before.

    `interval_seconds` is infinite where it saves at a notice only. A `process` leaves in its own way.
    """

    ready_at: float
    saved_seconds: float
    work_seconds: float
    interval_seconds: float
    save_seconds: float
    mode: Mode
    stop_seconds: float = 0.0
    process: Process | None = None

    @property
    def finishes_at(self) -> float:
        """The end, saves on the way included; none is made at the end itself."""
        return self.ready_at + self._remaining + self._saves * self.save_seconds

    @property
    def next_save_ends_after(self) -> float:
        """Seconds of one turn: work, then save."""
        return self.interval_seconds + self.save_seconds

    def saved_by(self, now: float) -> float:
        """Work that is safe at a moment, in seconds of the job's work."""
        return self.saved_seconds + self._turns(now) * self.interval_seconds if self._turns(now) else self.saved_seconds

    def done_by(self, now: float) -> float:
        """Work that is done at a moment, safe or not, in seconds of the job's work."""
        turns = self._turns(now)
        into = max(0.0, now - self.ready_at - (turns * self.next_save_ends_after if turns else 0.0))
        return self.saved_by(now) + min(into, self.interval_seconds, self._remaining)

    def saved_at(self, now: float) -> float | None:
        """When the last save before `now` was complete; None before the first."""
        turns = self._turns(now)
        return self.ready_at + turns * self.next_save_ends_after if turns else None

    def next_save_at(self, now: float) -> float:
        """When the next save will be complete (inf: none will)."""
        turns = self._turns(now)
        return self.ready_at + (turns + 1) * self.next_save_ends_after if turns < self._saves else math.inf

    def leave(self, now: float, grace_seconds: float) -> Leaving:
        """What follows a notice. CHECKPOINT saves if the grace suffices; the others leave at once."""
        if self.process is not None:
            return self.process.leave(self, now, grace_seconds)
        if self.mode is not Mode.CHECKPOINT:
            return Leaving(at=now + min(grace_seconds, self.stop_seconds), saved_seconds=0.0)
        if now <= self.ready_at:
            return Leaving(at=now, saved_seconds=self.saved_seconds)
        turns = self._turns(now)
        into = now - self.ready_at - (turns * self.next_save_ends_after if turns else 0.0)
        left = self.next_save_ends_after - into if into > self.interval_seconds else self.save_seconds
        if left > grace_seconds:
            return Leaving(at=now + grace_seconds, saved_seconds=self.saved_by(now))
        return Leaving(at=now + left, saved_seconds=self.done_by(now))

    @property
    def _remaining(self) -> float:
        return self.work_seconds - self.saved_seconds

    @property
    def _saves(self) -> int:
        if not math.isfinite(self.interval_seconds):
            return 0
        return max(0, math.ceil(self._remaining / self.interval_seconds) - 1)

    def _turns(self, now: float) -> int:
        if now <= self.ready_at or not math.isfinite(self.interval_seconds):
            return 0
        turns = int((now - self.ready_at) / self.next_save_ends_after)
        # A save that is complete at `now` has been made, whichever way the division was rounded.
        if self.ready_at + (turns + 1) * self.next_save_ends_after <= now:
            turns += 1
        return min(self._saves, turns)
