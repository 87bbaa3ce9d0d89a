"""What travels to the scheduler: past-tense facts, many to a message (topic ``scheduler.inbox``).

Under load one message carries many facts, idle a single one at once. Times on a node are told as ages, measured on
the node's own steady clock, because wall clocks of hosts differ.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from makeway_schemas.ids import GpuId, JobId, NodeId, PoolId, RunId, TeamId
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.messages import Message, Traced
from makeway_schemas.states import StopCause

BATCH_TYPE = "makeway.scheduler.facts.v1"

Age = Annotated[float, Field(ge=0, description="Seconds between the event and this message, on the node's clock.")]


class AdmittedJob(Message):
    """Everything the scheduler needs to know of a job; it asks nothing back."""

    job_id: JobId
    order: int = Field(description="Rising number of admission: the last key of every order.")
    pool: PoolId
    team: TeamId
    class_name: str
    submitted_by: str
    submitted_at: datetime
    spec: JobSpec
    teams_version: int = Field(default=0, description="Of the teams' rights by which it was admitted; rises with each.")


class JobAdmitted(Traced):
    """Admission has committed a job."""

    kind: Literal["job_admitted"] = "job_admitted"
    job: AdmittedJob


class CommandIssued(Traced):
    """Somebody asked for a change; admission has committed the request."""

    kind: Literal["command_issued"] = "command_issued"
    command_id: int
    command: Literal["cancel", "set_priority", "preempt", "resume", "set_limits"]
    job_id: JobId
    priority: int | None = None
    force: bool = Field(default=False, description="preempt: although something protects its run.")
    run: int | None = Field(
        default=None,
        ge=0,
        description="preempt: the run that is meant; another is left alone. 0: it had none; null: whichever it has.",
    )
    limits: dict[Literal["time_limit", "deadline"], float | None] = Field(
        default_factory=dict, description="set_limits: seconds of run time, seconds since the epoch; null: none."
    )
    issued_by: str
    issued_at: datetime


class NodeCommandIssued(Traced):
    """An operator wants something of a node; admission has committed the request."""

    kind: Literal["node_command_issued"] = "node_command_issued"
    command_id: int
    command: Literal["cordon", "uncordon", "drain", "dead"]
    node_id: NodeId
    force: bool = Field(default=False, description="drain: although something protects a run.")
    reason: str = Field(default="", max_length=500)
    issued_by: str
    issued_at: datetime


class PolicyApplied(Traced):
    """A policy was applied to the pool. The scheduler reads it from the database, where the newest one counts."""

    kind: Literal["policy_applied"] = "policy_applied"
    policy_id: int


class Ack(Message):
    """A checkpoint that the job says is saved."""

    step: int = Field(ge=0)
    epoch: int | None = None
    bytes: int | None = Field(default=None, ge=0)
    fraction: float | None = Field(default=None, ge=0, le=1)
    age_seconds: Age = 0.0


class Resume(Message):
    """A checkpoint that the job says it has loaded."""

    step: int = Field(ge=0)
    load_seconds: float = Field(ge=0)
    age_seconds: Age = 0.0


class NodeFact(Traced):
    """A fact that a node tells, with the session that tells it."""

    node_id: NodeId
    session: str


class RunStarted(NodeFact):
    """The job's process runs."""

    kind: Literal["run_started"] = "run_started"
    run_id: RunId
    pid: int
    age_seconds: Age


class NoticeDelivered(NodeFact):
    """The stop signal was delivered; from here on any exit is a preemption unless the job declared itself done."""

    kind: Literal["notice_delivered"] = "notice_delivered"
    run_id: RunId
    cause: StopCause
    grace_seconds: float
    age_seconds: Age


class CheckpointAcked(NodeFact):
    """The job saved its state up to a step."""

    kind: Literal["checkpoint_acked"] = "checkpoint_acked"
    run_id: RunId
    ack: Ack


class RunResumed(NodeFact):
    """The job loaded a checkpoint and goes on from it."""

    kind: Literal["run_resumed"] = "run_resumed"
    run_id: RunId
    step: int = Field(ge=0)
    load_seconds: float = Field(ge=0)
    age_seconds: Age


class RunEnd(Message):
    """How a run ended, as its shim (or who found it) wrote it down."""

    outcome: Literal["exited", "never_started", "start_failed", "lost"]
    exit_code: int | None = None
    signal: int | None = None
    cause: StopCause | None = Field(default=None, description="The stop that was in force, if any.")
    notice_delivered: bool = False
    done: bool = Field(default=False, description="The job declared itself done.")
    forced: bool = Field(default=False, description="It took SIGKILL.")
    ack: Ack | None = None
    run_seconds: float = Field(default=0.0, ge=0)
    log_bytes: int = Field(default=0, ge=0)
    message: str = Field(default="", max_length=2000, description="For people: what failed, by name.")


class RunExited(NodeFact):
    """A run is over: no process of its tree is left; which of its GPUs are proven empty already."""

    kind: Literal["run_exited"] = "run_exited"
    run_id: RunId
    end: RunEnd
    empty_gpus: tuple[GpuId, ...] = ()
    age_seconds: Age


class GpuEmpty(NodeFact):
    """A GPU of an ended run is proven empty; releases that lease alone."""

    kind: Literal["gpu_empty"] = "gpu_empty"
    gpu_id: GpuId
    run_id: RunId
    boot_id: str


class GpuReport(Message):
    """A GPU as its node sees it."""

    gpu_id: GpuId
    index: int = Field(ge=0)
    type_name: str = Field(max_length=64)
    vram_mib: int = Field(ge=0)
    reserved_mib: int = Field(default=0, ge=0)
    link_group: int | None = None
    mig_profile: str | None = None
    condition: Literal["ok", "occupied", "quarantined", "lost"] = "ok"
    reason: str = Field(default="", max_length=500)


class RunReport(Message):
    """A run that the node knows and that is not settled: repeated in every report until it has left the plan."""

    run_id: RunId
    state: Literal["waiting", "starting", "running", "noticed", "ended"]
    pid: int | None = None
    started_age_seconds: Age | None = None
    noticed_age_seconds: Age | None = None
    ack: Ack | None = None
    resumed: Resume | None = None
    end: RunEnd | None = None
    ended_age_seconds: Age | None = None
    empty_gpus: tuple[GpuId, ...] = ()
    held_gpus: tuple[GpuId, ...] = Field(default=(), description="Those that are not proven empty of it.")


class PlanNumber(Message):
    """Orders the plans of a node: the epoch of the pool's owner, then its number."""

    epoch: int = Field(ge=0)
    number: int = Field(ge=0)


class NodeReport(NodeFact):
    """The whole state of a node, every few seconds and on every start of its executor."""

    kind: Literal["node_report"] = "node_report"
    pool: PoolId
    boot_id: str
    sequence: int = Field(ge=0)
    plan: PlanNumber
    wants_plan: bool = Field(default=False, description="The node asks for the newest plan to be repeated.")
    simulated: bool = False
    cpus: int = Field(ge=0)
    memory_mib: int = Field(ge=0)
    labels: dict[str, str] = Field(default_factory=dict)
    accepts_runs: bool = True
    refusal: str = Field(default="", max_length=500, description="Why the node takes no new runs.")
    version: str = ""
    gpus: tuple[GpuReport, ...] = ()
    runs: tuple[RunReport, ...] = ()


class GpuHealthChanged(NodeFact):
    """Telemetry saw a card fail or recover."""

    kind: Literal["gpu_health_changed"] = "gpu_health_changed"
    gpu_id: GpuId
    healthy: bool
    reason: str = Field(max_length=500)


Fact = Annotated[
    JobAdmitted
    | CommandIssued
    | NodeCommandIssued
    | PolicyApplied
    | RunStarted
    | NoticeDelivered
    | CheckpointAcked
    | RunResumed
    | RunExited
    | GpuEmpty
    | NodeReport
    | GpuHealthChanged,
    Field(discriminator="kind"),
]


class FactBatch(Message):
    """One message of ``scheduler.inbox``: all that its sender had, in order."""

    version: Literal[1] = 1
    source: str
    facts: tuple[Fact, ...]
