"""Facts as this node tells them. Ids derive from what happened, so that telling it again is the same fact."""

from __future__ import annotations

from dataclasses import dataclass

from makeway_schemas.facts import (
    Ack,
    CheckpointAcked,
    GpuEmpty,
    NoticeDelivered,
    Resume,
    RunEnd,
    RunExited,
    RunResumed,
    RunStarted,
)
from makeway_schemas.ids import job_of
from makeway_schemas.states import StopCause

from makeway_executor.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Who tells: the node, the session of its executor, the boot. Ages are filled in when a fact is sent."""

    node_id: str
    session: str
    boot_id: str

    def started(self, run: Run, pid: int) -> RunStarted:
        """The job's process runs."""
        return RunStarted(**self._about(run, "started"), pid=pid, age_seconds=0.0)

    def noticed(self, run: Run, cause: StopCause, grace_seconds: float) -> NoticeDelivered:
        """The stop signal was delivered."""
        return NoticeDelivered(**self._about(run, "noticed"), cause=cause, grace_seconds=grace_seconds, age_seconds=0.0)

    def acked(self, run: Run, ack: Ack, moment_ns: int) -> CheckpointAcked:
        """The job saved its state."""
        return CheckpointAcked(**self._about(run, f"ack/{ack.step}/{moment_ns}"), ack=ack)

    def resumed(self, run: Run, resume: Resume) -> RunResumed:
        """The job goes on from a checkpoint."""
        return RunResumed(
            **self._about(run, "resumed"), step=resume.step, load_seconds=resume.load_seconds, age_seconds=0.0
        )

    def exited(self, run: Run, end: RunEnd, empty_gpus: tuple[str, ...]) -> RunExited:
        """The run is over."""
        return RunExited(**self._about(run, "exited"), end=end, empty_gpus=empty_gpus, age_seconds=0.0)

    def empty(self, run: Run, gpu_id: str) -> GpuEmpty:
        """A GPU is proven empty of an ended run."""
        return GpuEmpty(**self._about(run, f"empty/{gpu_id}"), gpu_id=gpu_id, boot_id=self.boot_id)

    def _about(self, run: Run, what: str) -> dict[str, str | None]:
        return {
            "id": f"{self.node_id}/{run.run_id}/{what}",
            "correlation_id": job_of(run.run_id),
            "traceparent": None if run.planned is None else run.planned.traceparent,
            "node_id": self.node_id,
            "session": self.session,
            "run_id": run.run_id,
        }
