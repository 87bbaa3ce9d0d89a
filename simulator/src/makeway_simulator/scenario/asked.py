"""A scenario's job as the policy knows it, through the schema of a submit.

`AskedSpec` adds to the schema what the policy decides and a submit does not take yet.
"""

from datetime import datetime
from typing import Annotated

from makeway_policy.asked import pairs, shape_of
from makeway_policy.model import Job, Mode, Overdue, Reason, Refusal
from makeway_policy.rules import Policy
from makeway_schemas.job_parts import Whole
from makeway_schemas.job_spec import GPUS_MAX, JobSpec
from pydantic import AwareDatetime, Field, ValidationError

from makeway_simulator.scenario.case import TEAM, CaseJob


class AskedSpec(JobSpec):
    """All that a scenario's job may ask for. Its moments are seconds since the scenario began."""

    members: Annotated[Whole, Field(ge=1, le=GPUS_MAX)] = 1
    distinct_nodes: bool = False
    begin_at: AwareDatetime | None = None
    deadline: AwareDatetime | None = None
    group: str | None = None  # type: ignore[assignment]


def asked_of(job: CaseJob, policy: Policy) -> Job | Refusal:
    """The job with order 0, or the field that the schema refuses."""
    try:
        spec = AskedSpec.model_validate({**job.spec, "command": ["job"]})
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in detail["loc"] if not str(part).endswith("]"))
        told = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
        sentence = f"{field}: {told}" if field else told
        return Refusal(reason=Reason.INVALID, sentence=sentence, detail={"field": field or told.partition(":")[0]})
    entry = job.entry
    return Job(
        job_id=job.name,
        order=0,
        team=spec.team or TEAM,
        user=entry.user,
        class_name=spec.class_ or policy.default_class,
        submitted_at=job.at,
        queued_since=job.at,
        shape=shape_of(spec, members=spec.members, distinct_nodes=spec.distinct_nodes),
        own_priority=spec.priority,
        preemptible=spec.preemptible,
        mode=None if spec.preemption.mode is None else Mode(spec.preemption.mode.value.lower()),
        grace_seconds=spec.preemption.grace,
        exempt_after_seconds=spec.preemption.exempt_after,
        time_limit_seconds=spec.time_limit,
        begin_at=_moment(spec.begin_at),
        deadline=_moment(spec.deadline),
        max_wait_seconds=spec.max_wait,
        on_deadline=None if spec.on_deadline is None else Overdue(spec.on_deadline),
        on_max_wait=None if spec.on_max_wait is None else Overdue(spec.on_max_wait),
        group=spec.group,
        labels=pairs(spec.labels),
    )


def _moment(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
