"""Jobs: submitted, shown, explained, changed."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from makeway_schemas.api.base import ApiModel
from makeway_schemas.durations import Seconds
from makeway_schemas.job_spec import DURATION_MAX_SECONDS, JobSpec
from makeway_schemas.moments import Moment
from makeway_schemas.states import JobState, RunState


class Submitted(ApiModel):
    """The answer to ``POST /v1/jobs``; ``repeated`` is true when the idempotency key was known already."""

    job_id: str
    name: str
    repeated: bool = False


class Resolved(ApiModel):
    """The answer to ``GET /v1/resolve``: the id of the job that a name, a prefix or ``@last`` means."""

    job_id: str


class RunView(ApiModel):
    """One run of a job."""

    run_id: str
    number: int
    state: RunState
    node: str
    gpus: tuple[str, ...] = ()
    gpu_indexes: tuple[int, ...] = ()
    trigger: str = Field(default="free", description="free, or what made the preemption happen.")
    planned_at: datetime
    started_at: datetime | None = None
    noticed_at: datetime | None = None
    ended_at: datetime | None = None
    end_cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    forced: bool = False
    run_seconds: float | None = None
    ack_step: int | None = None
    acked_at: datetime | None = None
    resumed_step: int | None = None
    log_bytes: int | None = None
    message: str = ""


class JobView(ApiModel):
    """A job as ``ps`` and ``show`` print it."""

    job_id: str
    name: str
    pool: str
    team: str
    class_name: str = Field(alias="class")
    priority: int = Field(description="The base value in force: manual, own or the class's.")
    state: JobState
    reason_code: str = ""
    reason: str = ""
    gpus: int = Field(description="What it asks for; of a range the fewest.")
    gpus_max: int | None = Field(default=None, description="Of a range the most.")
    gpus_held: int | None = Field(default=None, description="What its run has been given; null: it has no run.")
    node: str | None = Field(default=None, description="Where its run is or was; null while it waits.")
    submitted_by: str
    submitted_at: datetime
    queued_since: datetime | None = None
    started_at: datetime | None = Field(default=None, description="First start of a process of the job.")
    running_since: datetime | None = None
    ended_at: datetime | None = None
    end_cause: str | None = None
    exit_code: int | None = None
    run_number: int = 0
    preemptions: int = 0
    used_seconds: float = 0.0
    cancel_requested: bool = False
    last_ack_step: int | None = None
    message: str = Field(default="", description="How its last run or the job ended, or who cancels it.")
    labels: dict[str, str] = Field(default_factory=dict)


class JobDetail(JobView):
    """``GET /v1/jobs/{id}``: the job with its specification and its runs."""

    spec: JobSpec
    runs: tuple[RunView, ...] = ()


class JobPage(ApiModel):
    """A page of jobs, newest first; pass ``next`` as ``cursor`` for the following one."""

    jobs: tuple[JobView, ...]
    next: str | None = None


class PriorityChange(ApiModel):
    """``PUT /v1/jobs/{id}/priority``; null takes a manual value back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int | None = Field(ge=0, le=10_000, strict=True)


class CommandAccepted(ApiModel):
    """202: the request is kept; it has taken effect once ``GET /v1/jobs/{id}`` says so."""

    command_id: int | None
    job_id: str
    state: JobState
    message: str = ""


class LimitsChange(ApiModel):
    """``PATCH /v1/jobs/{id}``: what is named changes, null takes it away, what is left out stays."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    time_limit: Annotated[Seconds, Field(gt=0, le=DURATION_MAX_SECONDS)] | None = None
    deadline: Moment | None = None


class PreemptBody(ApiModel):
    """``POST /v1/jobs/{id}/preempt``: which run is meant, and whether to overrule what protects it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: int | None = Field(
        default=None,
        ge=0,
        le=2**31 - 1,
        strict=True,
        description="Its number; a repeated or late request leaves a later run alone. null: the newest there is now.",
    )
    force: bool = Field(default=False, strict=True)


class CommandView(ApiModel):
    """``GET /v1/commands/{id}``. An ``outcome`` that begins with ``refused: `` says why nothing was done."""

    command_id: int
    job_id: str | None = None
    node_id: str | None = None
    command: str
    issued_by: str
    issued_at: datetime
    applied_at: datetime | None = None
    outcome: str | None = None


class EventView(ApiModel):
    """One event of a job, as the SSE stream sends it (``id`` is its sequence)."""

    sequence: int
    job_id: str
    at: datetime
    kind: str
    state: JobState
    run: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class AheadView(ApiModel):
    """A job that is ahead in the queue."""

    job_id: str
    name: str
    class_name: str = Field(alias="class")
    queue_value: int


class WhyView(ApiModel):
    """``GET /v1/jobs/{id}/why``: why the job is where it is, from the decision that was stored.

    What ``detail`` says of times and runs is said as of ``as_of``: no moment in it lies behind as if it still came, and
    no run that has left is listed. Figures such as ``gpus`` are those of ``decided_at``.
    """

    job_id: str
    state: JobState
    reason_code: str
    reason: str
    queue_position: int | None = None
    queue_length: int | None = None
    ahead: tuple[AheadView, ...] = ()
    as_of: datetime | None = Field(default=None, description="The server's time of this answer.")
    decision: str = Field(default="", description="What was decided: wait, start, preempt, ...; empty: nothing yet.")
    decided_at: datetime | None = None
    detail: dict[str, Any] = Field(default_factory=dict)


class PreemptionView(ApiModel):
    """The record of one preemption, each step with its time."""

    preemptor_job: str | None
    preemptor_run: str | None
    victim_job: str
    victim_run: str
    trigger: str
    rule: str
    preemptor_value: int | None
    victim_value: int
    expected_cost_gpu_seconds: float
    decided_at: datetime
    noticed_at: datetime | None = None
    acked_at: datetime | None = None
    acked_step: int | None = None
    acked_bytes: int | None = None
    exited_at: datetime | None = None
    forced: bool | None = None
    empty_at: datetime | None = None
    bound_at: datetime | None = None
    resumed_at: datetime | None = None
    resumed_step: int | None = None
    load_seconds: float | None = None
    lost_gpu_seconds: float | None = None
    void: bool = False
