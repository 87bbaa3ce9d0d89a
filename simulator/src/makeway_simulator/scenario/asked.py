"""A scenario's job as the policy knows it, through the schema of a submit.

`AskedSpec` adds to the schema what the policy decides and a submit does not take yet.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from makeway_policy.model import Job, Mode, Overdue, Reason, Refusal, Shape
from makeway_policy.rules import Policy
from makeway_schemas.durations import Mib, Seconds
from makeway_schemas.job_spec import GPUS_MAX, JobSpec, Preemption, SpecModel
from pydantic import Field, ValidationError

from makeway_simulator.scenario.case import TEAM, CaseJob

_Whole = Annotated[int, Field(strict=True)]
_Duration = Annotated[Seconds, Field(ge=0)]


class AskedPreemption(Preemption):
    """How the job is pushed aside."""

    exempt_after: _Duration | None = None


class AskedConstraints(SpecModel):
    """Where the job may run."""

    nodes: tuple[str, ...] = ()
    exclude_nodes: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)


class AskedSpec(JobSpec):
    """All that a scenario's job may ask for."""

    members: Annotated[_Whole, Field(ge=1, le=GPUS_MAX)] = 1
    distinct_nodes: bool = False
    shares: Annotated[_Whole, Field(ge=1, le=GPUS_MAX)] | None = None
    mig: str | None = None
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory: Annotated[Mib, Field(gt=0)] | None = None
    constraints: AskedConstraints = Field(default_factory=AskedConstraints)
    preemption: AskedPreemption = Field(default_factory=AskedPreemption)
    deadline: Seconds | None = None
    max_wait: _Duration | None = None
    begin_at: _Duration | None = None
    group: str | None = None


def asked_of(job: CaseJob, policy: Policy) -> Job | Refusal:
    """The job with order 0, or the field that the schema refuses."""
    try:
        spec = AskedSpec.model_validate({**job.spec, "command": ["job"]})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in detail["loc"] if not str(part).endswith("]"))
        return Refusal(reason=Reason.INVALID, sentence=f"{field}: {detail['msg']}", detail={"field": field})
    entry = job.entry
    return Job(
        job_id=job.name,
        order=0,
        team=spec.team or TEAM,
        user=entry.user,
        class_name=spec.class_ or policy.default_class,
        submitted_at=job.at,
        queued_since=job.at,
        shape=_shape(spec),
        own_priority=spec.priority,
        preemptible=spec.preemptible,
        mode=None if spec.preemption.mode is None else Mode(spec.preemption.mode.value.lower()),
        grace_seconds=spec.preemption.grace,
        exempt_after_seconds=spec.preemption.exempt_after,
        time_limit_seconds=spec.time_limit,
        begin_at=spec.begin_at,
        deadline=spec.deadline,
        max_wait_seconds=spec.max_wait,
        on_deadline=None if entry.on_deadline is None else Overdue(entry.on_deadline),
        on_max_wait=None if entry.on_max_wait is None else Overdue(entry.on_max_wait),
        group=spec.group,
    )


def _shape(spec: AskedSpec) -> Shape:
    where = spec.constraints
    labels: Mapping[str, Any] = where.labels
    return Shape(
        gpus=spec.gpus,
        gpu_type=spec.gpu_type,
        min_vram_mib=spec.min_vram_mib or 0,
        vram_mib=spec.vram_mib,
        shares=spec.shares,
        mig=spec.mig,
        cpus=spec.cpus,
        memory_mib=spec.memory,
        members=spec.members,
        distinct_nodes=spec.distinct_nodes,
        labels=tuple(sorted(labels.items())),
        nodes=frozenset(where.nodes),
        exclude_nodes=frozenset(where.exclude_nodes),
    )
