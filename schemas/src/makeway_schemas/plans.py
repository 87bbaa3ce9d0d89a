"""What travels to a node: its complete desired state, numbered (topic ``node.plans``)."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from makeway_schemas.ids import GpuId, JobId, NodeId, RunId
from makeway_schemas.job_spec import NoticeSignal
from makeway_schemas.messages import Message, Traceparent
from makeway_schemas.states import StopCause

PLAN_TYPE = "makeway.node.plan.v1"


class Verb(StrEnum):
    """What the node must make true of a run. WITHDRAW stops it only if it has not started."""

    RUN = "RUN"
    STOP = "STOP"
    WITHDRAW = "WITHDRAW"


class LeasedGpu(Message):
    """A run's part of a GPU; a whole card is all of its MiB."""

    gpu_id: GpuId
    vram_mib: int = Field(ge=0)
    whole: bool = True


class Launch(Message):
    """What to execute; bounded by ``job_spec.LAUNCH_MAX_BYTES``."""

    command: tuple[str, ...] | None = None
    script: str | None = None
    working_dir: str | None = None
    env: dict[str, str] = Field(default_factory=dict)


class Stop(Message):
    """Stop with a notice, then SIGKILL when the grace is over."""

    cause: StopCause
    grace_seconds: float = Field(ge=0)
    signal: NoticeSignal = NoticeSignal.SIGTERM


class PlannedRun(Message):
    """A run from its decision until its end is booked and its leases are released."""

    run_id: RunId
    job_id: JobId
    verb: Verb
    gpus: tuple[LeasedGpu, ...]
    after: tuple[RunId, ...] = Field(default=(), description="Start once these are proven empty; the node does it.")
    stop: Stop | None = Field(default=None, description="With STOP.")
    launch: Launch | None = Field(default=None, description="With RUN.")
    grace_seconds: Annotated[float, Field(ge=0)] = 0.0
    signal: NoticeSignal = NoticeSignal.SIGTERM
    time_limit_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="What is left of the job's time limit, counted by the node from the start of this run.",
    )
    started: bool = Field(
        default=False, description="With RUN: it has started; a node that knows nothing of it buries it."
    )
    checkpoint: bool = Field(default=False, description="The job checkpoints; its folder is kept between runs.")
    traceparent: Traceparent | None = None


class NodePlan(Message):
    """Nothing starts from a plan made for another session; a lower (epoch, number) is refused."""

    version: Literal[1] = 1
    node_id: NodeId
    epoch: int = Field(ge=0)
    number: int = Field(ge=0)
    session: str = Field(description="The executor session this was made for, as its last report named it.")
    runs: tuple[PlannedRun, ...] = ()
