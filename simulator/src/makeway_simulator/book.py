"""What the engine knows of jobs and runs beyond the policy's state."""

import math
from dataclasses import dataclass

from makeway_policy.model import Mode

from makeway_simulator.outcome import EndKind
from makeway_simulator.physics import Course, Leaving
from makeway_simulator.rivals.loop import Cost
from makeway_simulator.setting import Setting
from makeway_simulator.trace import TraceJob


@dataclass(eq=False, kw_only=True, slots=True)
class Live:
    """A run that has started. At `limit_at` its job's time limit stops it, as its node would."""

    run_id: str
    job_id: str
    number: int
    started_at: float
    gpus: tuple[str, ...]
    course: Course
    limit_at: float = math.inf
    noticed_at: float | None = None
    leaving: Leaving | None = None
    kind: EndKind = EndKind.FINISHED

    @property
    def ends_at(self) -> float:
        """When it is gone, as things are."""
        return self.leaving.at if self.leaving is not None else min(self.course.finishes_at, self.limit_at)


@dataclass(eq=False, kw_only=True, slots=True)
class Book:
    """What the simulator knows of a job beyond the policy's state."""

    job: TraceJob
    mode: Mode
    gpus: int
    saved: float = 0.0
    first_started_at: float | None = None
    held: float = 0.0
    preemptions: int = 0
    retries_used: int = 0
    failures_in_a_row: int = 0
    live: Live | None = None


def course_of(book: Book, setting: Setting, now: float, *, resumed: bool) -> Course:
    """How a run of the job that starts now goes if nothing disturbs it."""
    physics = setting.physics
    startup = book.job.startup_seconds
    if setting.cost is Cost.PEER:
        startup = 0.0
    elif startup is None:
        startup = physics.restore_seconds if resumed else 0.0
    saves = book.mode is Mode.CHECKPOINT and physics.checkpoint_interval_seconds
    return Course(
        ready_at=now + startup,
        saved_seconds=book.saved,
        work_seconds=book.job.work_seconds,
        interval_seconds=physics.checkpoint_interval_seconds or math.inf if saves else math.inf,
        save_seconds=physics.save_seconds,
        mode=book.mode,
        stop_seconds=physics.stop_seconds,
        process=book.job.detail.process if book.job.detail is not None else None,
    )
