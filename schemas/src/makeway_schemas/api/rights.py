"""Who may do what: teams, tokens, policies."""

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from makeway_schemas.amounts import Amount
from makeway_schemas.api.base import ApiModel
from makeway_schemas.names import NodeName, TeamName
from makeway_schemas.states import JobState


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
    pool_gpus: int | None = Field(default=None, description="The GPUs that per cent of the pool are of.")
    notes: tuple[str, ...] = Field(default=(), description="Of an answer to PUT: what else should be known of it.")


class TokenRequest(ApiModel):
    """``POST /v1/tokens``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["viewer", "submitter", "admin", "node"]
    team: TeamName | None = None
    node: NodeName | None = None
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
