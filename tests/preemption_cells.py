"""Preemptions held at a step: each `Cell` has a card of its own, a victim and a preemptor, and goes on when told.

The steps, in order: `running` (the preemptor is not submitted yet), `noticed`, `acked`, `taken over` (the preemptor
runs), `resumed` (the victim runs again). Two steps cannot be held, since nobody waits in them: right after the submit
of the preemptor, and the victim on its way out; a cell is pushed into them just before something is broken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from live_cluster import LiveCluster, LiveJob, wait_until

LANES = ("A10-24GB", "A30-24GB", "A40-48GB", "H100-80GB", "L4-24GB", "L40S-48GB", "T4-16GB", "V100-16GB")
"""Types of which the shared cluster has one card each: a preemption on one of them meets no other."""

POOL = "A100-80GB"
"""The type of which it has four."""

HELD = ("running", "noticed", "acked", "taken over", "resumed")
ACKED_STEP = 41


@dataclass(kw_only=True)
class Cell:
    """One preemption on one card."""

    cluster: LiveCluster
    name: str
    card: str
    victim: LiveJob = field(init=False)
    preemptor: LiveJob = field(init=False)
    step: str = ""
    saved: int | None = None
    pids: dict[str, int] = field(default_factory=dict)

    def reach(self, step: str) -> None:
        """Go on to a step that can be held, through those before it."""
        for each in HELD[HELD.index(self.step) + 1 if self.step else 0 : HELD.index(step) + 1]:
            self._ACTIONS[each](self)
            self.step = each

    def submit_preemptor(self) -> None:
        """The preemptor comes."""
        self.preemptor = self.cluster.submit(f"{self.name}-preemptor", gpu_type=self.card)

    def release_victim(self) -> None:
        """The victim leaves, its work saved."""
        self.victim.tell("exit 0", run=1)

    def remember(self) -> None:
        """Whose process lives now, and must be the same afterwards."""
        self.pids = {
            job.folder.name: job.pid() for job in self.cluster.jobs if job.folder.name.startswith(f"{self.name}-")
            and job.runs and job.alive()
        }  # fmt: skip

    def finish(self) -> None:
        """Through all steps that are left, to the end of both, and look whether it was the right one."""
        if self.step == "running" and hasattr(self, "preemptor"):
            self.victim.wait_for("noticed", run=1)
            self.step = "noticed"
        self.reach("resumed")
        self.victim.tell("exit 0", run=2)
        ended = self.victim.wait_end()
        assert (ended.state, ended.preemptions, ended.exit_code) == ("SUCCEEDED", 1, 0), f"{self.name}: {ended}"
        assert self.victim.runs == [1, 2], f"{self.name}: the victim started {self.victim.runs}"
        assert self.preemptor.runs == [1], f"{self.name}: the preemptor started {self.preemptor.runs}"
        resumed = [each["step"] for each in self.victim.journal("resumed")]
        assert resumed == [self.saved], f"{self.name}: saved step {self.saved}, resumed {resumed}"

    def assert_untouched(self) -> None:
        """Whoever was remembered has the same process, and nobody was signalled."""
        for job in self.cluster.jobs:
            pid = self.pids.get(job.folder.name)
            if pid is not None:
                assert job.pid() == pid, f"{job.folder.name} was process {pid} and is {job.pid()}"
                assert job.alive(), f"{job.folder.name}, process {pid}, is gone"

    def _run_victim(self) -> None:
        self.victim = self.cluster.submit(f"{self.name}-victim", gpu_type=self.card, priority=1, **{"class": "low"})
        self.victim.wait_for("started", run=1)

    def _notice_victim(self) -> None:
        if not hasattr(self, "preemptor"):
            self.submit_preemptor()
        self.victim.wait_for("noticed", run=1)

    def _save_victim(self) -> None:
        self.victim.obey(f"ack {ACKED_STEP}", run=1)
        self.saved = ACKED_STEP

    def _take_over(self) -> None:
        if not self.victim.journal("leaves", run=1):
            self.release_victim()
        self.preemptor.wait_for("started", run=1)

    def _resume_victim(self) -> None:
        if not self.preemptor.journal("leaves"):
            self.preemptor.tell("exit 0")
        ended = self.preemptor.wait_end()
        assert (ended.state, ended.preemptions) == ("SUCCEEDED", 0), f"{self.name}: {ended}"
        self.victim.wait_for("resumed", run=2)

    _ACTIONS: ClassVar[dict[str, Callable[["Cell"], None]]] = {
        "running": _run_victim,
        "noticed": _notice_victim,
        "acked": _save_victim,
        "taken over": _take_over,
        "resumed": _resume_victim,
    }


def reach_together(cells: Sequence[tuple[Cell, str]]) -> None:
    """Bring each cell to its step; those that have the same way to go go it side by side."""
    for step in HELD:
        for cell, goal in cells:
            if HELD.index(step) <= HELD.index(goal):
                cell.reach(step)


def all_of(checks: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Every check is made; raises AssertionError with all that failed."""
    failed = []
    for name, check in checks:
        try:
            check()
        except AssertionError as error:
            failed.append(f"[{name}] {error}")
    assert not failed, "\n".join(failed)


def booked(job: LiveJob, column: str) -> None:
    """Wait until a run's time is in the database."""
    wait_until(
        lambda: job.cluster.sql(f"SELECT 1 FROM runs WHERE job_id = $1 AND {column} IS NOT NULL", job.job_id),
        f"{column} of {job.folder.name} is booked",
    )
