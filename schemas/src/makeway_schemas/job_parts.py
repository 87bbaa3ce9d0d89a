"""The parts of a job's specification that are models of their own: where it may run, its retries, how it makes way."""

import re
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from makeway_schemas.durations import Seconds
from makeway_schemas.names import NodeName

DURATION_MAX_SECONDS: Final = 366 * 86400.0
LABELS_MAX_ITEMS: Final = 64
NODES_MAX_ITEMS: Final = 1024
RETRIES_MAX: Final = 1000
GROUP_MAX: Final = 1_000_000
LABEL_VALUE_MAX_CHARACTERS: Final = 253

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,125}[A-Za-z0-9])?")

Whole = Annotated[int, Field(strict=True)]
Labels = dict[str, Annotated[str, StringConstraints(max_length=LABEL_VALUE_MAX_CHARACTERS)]]


class PreemptionMode(StrEnum):
    """What a stopped run means: OFF is never stopped; CANCEL ends the job; the others put it back in the queue."""

    OFF = "OFF"
    CANCEL = "CANCEL"
    REQUEUE = "REQUEUE"
    CHECKPOINT = "CHECKPOINT"


class NoticeSignal(StrEnum):
    """The signals that may carry the stop notice."""

    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"
    SIGHUP = "SIGHUP"


class TopologyWish(StrEnum):
    """How a job wants its GPUs linked inside a node."""

    REQUIRE = "require"
    PREFER = "prefer"
    ANY = "any"


class OverdueAction(StrEnum):
    """What becomes of a job that has not started in time."""

    CANCEL = "cancel"
    DEGRADE = "degrade"
    PROMOTE = "promote"


class SpecModel(BaseModel):
    """Frozen; an unknown field is refused; numbers are not made of texts nor whole numbers of fractions."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


def checked_labels(value: dict[str, str]) -> dict[str, str]:
    """Labels whose names and values can be kept and shown. Raises ValueError."""
    for name, text in value.items():
        if _LABEL_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no label: up to 127 letters, digits, '_', '.', '/', '-'")
        if not text.isprintable():
            raise ValueError(f"the value of {name!r} has characters that cannot be printed")
    return value


class Preemption(SpecModel):
    """How this job is pushed aside; what it leaves out comes from its class."""

    mode: PreemptionMode | None = Field(default=None, description="OFF, CANCEL, REQUEUE or CHECKPOINT.")
    grace: Annotated[Seconds, Field(ge=0, le=DURATION_MAX_SECONDS)] | None = Field(
        default=None, description="Time between the stop notice and SIGKILL, within the class's maximum."
    )
    signal: NoticeSignal = Field(default=NoticeSignal.SIGTERM, description="The signal that carries the notice.")
    exempt_after: Annotated[Seconds, Field(gt=0, le=DURATION_MAX_SECONDS)] | None = Field(
        default=None, description="A run that has run so long is left alone; needs the allowance not_preemptible."
    )


class Constraints(SpecModel):
    """Where the job may run, and where it would rather."""

    labels: Labels = Field(
        default_factory=dict, max_length=LABELS_MAX_ITEMS, description="Labels that a node must have."
    )
    nodes: tuple[NodeName, ...] = Field(
        default=(), max_length=NODES_MAX_ITEMS, description="The only nodes that will do; none given: any."
    )
    exclude_nodes: tuple[NodeName, ...] = Field(
        default=(), max_length=NODES_MAX_ITEMS, description="Nodes that will not do."
    )
    affinity: Labels = Field(
        default_factory=dict,
        max_length=LABELS_MAX_ITEMS,
        description="Rather on nodes that have these labels, or that run jobs which do.",
    )
    anti_affinity: Labels = Field(
        default_factory=dict,
        max_length=LABELS_MAX_ITEMS,
        description="Rather not on nodes that have these labels, or that run jobs which do.",
    )

    @field_validator("labels", "affinity", "anti_affinity")
    @classmethod
    def _label_names(cls, value: dict[str, str]) -> dict[str, str]:
        return checked_labels(value)


class DisruptionGroup(SpecModel):
    """Jobs of a team that must not all be down at once; the definition of the newest job of the group counts."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")] = Field(
        description="What the jobs of the group share."
    )
    min_available: Annotated[Whole, Field(ge=0, le=GROUP_MAX)] | None = Field(
        default=None, description="So many of them keep running; or give max_down."
    )
    max_down: Annotated[Whole, Field(ge=0, le=GROUP_MAX)] | None = Field(
        default=None, description="At most so many of them are stopped at once; or give min_available."
    )
    hard: bool = Field(
        default=True, strict=True, description="Never broken (needs the allowance hard_groups), or only if need be."
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.min_available is None) == (self.max_down is None):
            raise ValueError("exactly one of min_available and max_down must be given")
        return self


class Retries(SpecModel):
    """What happens when the job itself fails; a preemption or a loss is never counted here."""

    max: Annotated[Whole, Field(ge=0, le=RETRIES_MAX)] = Field(default=0, description="So often it is tried again.")
    backoff: Annotated[Seconds, Field(ge=0, le=DURATION_MAX_SECONDS)] = Field(
        default=10.0, description="Wait before the first further try; it doubles with each."
    )
    exit_codes: tuple[Annotated[Whole, Field(ge=0, le=255)], ...] = Field(
        default=(), max_length=256, description="Only these exit codes are tried again; none given: all but 0."
    )
