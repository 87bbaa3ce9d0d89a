"""The models of the HTTP API (version 1). Errors are RFC 9457 problem details, media type application/problem+json."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from makeway_schemas.amounts import Amount
from makeway_schemas.durations import Seconds
from makeway_schemas.job_spec import DURATION_MAX_SECONDS, JobSpec
from makeway_schemas.moments import Moment
from makeway_schemas.states import JobState, RunState

PROBLEM_TYPE = "application/problem+json"


class ApiModel(BaseModel):
    """A frozen value at the border. A newer server may add fields: a client ignores those it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, ser_json_inf_nan="null")


class FieldProblem(ApiModel):
    """What is wrong with one field: its path as in the request, and the limit that it breaks."""

    field: str
    message: str


class Problem(ApiModel):
    """RFC 9457. ``code`` is one of a few stable words, documented in docs/api.md."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    code: str
    fields: tuple[FieldProblem, ...] = ()


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
    message: str = ""
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


class ForceBody(ApiModel):
    """``POST /v1/jobs/{id}/preempt``: whether to overrule what protects the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    force: bool = Field(default=False, strict=True)


class NodeClosing(ApiModel):
    """``POST /v1/nodes/{id}/cordon`` and ``/drain``: why; and for a drain, whether to overrule what protects runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str = Field(default="", max_length=500)
    force: bool = Field(default=False, strict=True)


class NodeCommandAccepted(ApiModel):
    """202: the request is kept; it has taken effect once ``GET /v1/commands/{id}`` has an outcome."""

    command_id: int
    node_id: str


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
    """``GET /v1/jobs/{id}/why``: why the job is where it is, from the decision that was stored."""

    job_id: str
    state: JobState
    reason_code: str
    reason: str
    queue_position: int | None = None
    queue_length: int | None = None
    ahead: tuple[AheadView, ...] = ()
    decided_at: datetime | None = None
    detail: dict[str, Any] = Field(default_factory=dict)


class GpuView(ApiModel):
    """A GPU with its leases and its newest readings; an unknown reading is null."""

    gpu_id: str
    node: str
    index: int
    type_name: str
    vram_mib: int
    state: str
    reason: str = ""
    simulated: bool = False
    leased_mib: int = 0
    jobs: tuple[str, ...] = ()
    next_jobs: tuple[str, ...] = ()
    utilisation_percent: float | None = None
    vram_used_mib: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sampled_at: datetime | None = None


class NodeView(ApiModel):
    """A node and what it carries."""

    node_id: str
    pool: str
    state: str
    accepts_runs: bool
    refusal: str = ""
    cordoned: bool = False
    draining: bool = False
    note: str = Field(default="", description="Who cordoned or drains it, and why.")
    simulated: bool
    gpus: int
    gpus_leased: int
    cpus: int
    memory_mib: int
    labels: dict[str, str] = Field(default_factory=dict)
    version: str = ""
    state_since: datetime


class GpuTypeFigures(ApiModel):
    """Figures of one GPU type in one pool; sums skip unknown readings, whose number is said."""

    pool: str
    type_name: str
    gpus: int
    gpus_leased: int
    gpus_unusable: int
    vram_mib: int
    vram_leased_mib: int
    vram_used_mib: int | None = None
    utilisation_percent: float | None = None
    unknown_readings: int = 0
    simulated: bool = False


class ClusterView(ApiModel):
    """``GET /v1/cluster``."""

    version: str
    nodes: int
    nodes_ready: int
    gpus: int
    gpus_leased: int
    jobs: dict[str, int]
    by_type: tuple[GpuTypeFigures, ...]
    scheduler: str = Field(description="The pool's owner, or empty while it has none.")
    epoch: int


class TeamBody(ApiModel):
    """``PUT /v1/teams/{id}``. Allowances are GPUs of ``urgent``, ``high``, ``not_preemptible`` and
    ``hard_groups``; absent means 0. GPUs are a number, or per cent of the pool such as ``"25%"``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    limit: Amount | None = Field(default=None, description="GPUs at most; null: none.")
    guarantee: Amount = Field(default=0, description="GPUs that it can always get back.")
    user_limit: Amount | None = Field(default=None, description="GPUs at most of each of its users; null: none.")
    gpu_hours_per_month: float | None = Field(
        default=None, ge=0, le=1e12, description="Of a calendar month, UTC; then nothing more starts. null: any."
    )
    weight: float = Field(default=1.0, ge=0, le=1_000_000)
    max_queued: int = Field(default=100_000, ge=0, le=10_000_000, strict=True)
    class_limits: dict[str, Amount] = Field(default_factory=dict)
    allowances: dict[str, Amount] = Field(default_factory=dict)


class TeamView(ApiModel):
    """A team, its limits and what it uses now, counted from live leases."""

    team: str
    limit: Amount | None
    guarantee: Amount
    user_limit: Amount | None = None
    gpu_hours_per_month: float | None = None
    weight: float
    max_queued: int
    class_limits: dict[str, Amount] = Field(default_factory=dict)
    allowances: dict[str, Amount] = Field(default_factory=dict)
    gpus_used: float
    jobs_waiting: int
    jobs_running: int


class TokenRequest(ApiModel):
    """``POST /v1/tokens``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["viewer", "submitter", "admin", "node"]
    team: str | None = None
    node: str | None = None
    classes: tuple[str, ...] | None = Field(default=None, description="Classes it may submit to; null: all.")
    label: str = Field(default="", max_length=200)
    expires_in_seconds: float | None = Field(default=None, gt=0)


class TokenView(ApiModel):
    """A token without its secret."""

    token_id: str
    role: str
    team: str | None = None
    node: str | None = None
    classes: tuple[str, ...] | None = None
    label: str = ""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class TokenCreated(TokenView):
    """The only time the secret is shown."""

    token: str


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


class PolicyView(ApiModel):
    """``GET /v1/policies/{pool}``: the policy in force. ``policy_id`` is null while none was applied."""

    pool: str
    policy_id: int | None = None
    document: dict[str, Any] = Field(
        description="What was applied, in the fields of a policy file; the rest is preset."
    )
    effective: dict[str, Any] = Field(description="Every value that holds, in the same fields; durations in seconds.")
    applied_by: str = ""
    applied_at: datetime | None = None


class PolicyFieldChange(ApiModel):
    """One value that a policy changes. Null is none: no limit, no such class."""

    field: str
    before: Any = None
    after: Any = None


class PolicyJobChange(ApiModel):
    """A job whose base priority a policy changes."""

    job_id: str
    name: str
    team: str
    class_name: str = Field(alias="class")
    state: JobState
    before: int
    after: int


class PolicyApplied(ApiModel):
    """``PUT /v1/policies/{pool}``: what changes, or with ``dry_run`` what would."""

    policy: PolicyView
    applied: bool = Field(description="False for a dry run, and where it is the policy in force already.")
    changes: tuple[PolicyFieldChange, ...] = ()
    jobs_changed: int = Field(default=0, description="Jobs that have not ended and whose base changes.")
    jobs: tuple[PolicyJobChange, ...] = Field(default=(), description="The first hundred of them, by admission.")


class Health(ApiModel):
    """``GET /healthz`` of any service."""

    healthy: bool
    checks: dict[str, str] = Field(default_factory=dict)
