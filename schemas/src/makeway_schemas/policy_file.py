"""What a policy file may say. The JSON Schema generated from ``PolicyFile`` is the list of its fields.

A file names a preset to start from and what it changes; what it leaves out stays as the preset has it. Bounds that
hold for every policy are checked here; whether the values fit together is checked by the policy itself.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from makeway_schemas.durations import Seconds, duration_schema
from makeway_schemas.job_parts import RETRIES_MAX
from makeway_schemas.job_spec import (
    DURATION_MAX_SECONDS,
    PRIORITY_MAX,
    SHARES_MAX,
    PreemptionMode,
    SpecModel,
)
from makeway_schemas.names import ClassName

CLASSES_MAX_ITEMS: Final = 64
ALIASES_MAX_ITEMS: Final = 256
DURATION_MIN_SECONDS: Final = 0.001
"""Of what is not 0: clocks tell no shorter ones apart, so that what ages, expires or recurs would never be done."""

_Whole = Annotated[int, Field(strict=True)]
_Number = Annotated[float, Field(strict=True)]
_Switch = Annotated[bool, Field(strict=True)]
_Value = Annotated[_Whole, Field(ge=0, le=PRIORITY_MAX)]


def _none_or_long_enough(seconds: float) -> float:
    if 0 < seconds < DURATION_MIN_SECONDS:
        raise ValueError(f"should be 0, or greater than or equal to {DURATION_MIN_SECONDS:g}")
    return seconds


_Duration = Annotated[
    Seconds,
    Field(ge=0, le=DURATION_MAX_SECONDS),
    AfterValidator(_none_or_long_enough),
    WithJsonSchema(
        duration_schema({"const": 0}, minimum=DURATION_MIN_SECONDS, maximum=DURATION_MAX_SECONDS), mode="validation"
    ),
]
_PositiveDuration = Annotated[
    Seconds,
    Field(ge=DURATION_MIN_SECONDS, le=DURATION_MAX_SECONDS),
    WithJsonSchema(duration_schema(minimum=DURATION_MIN_SECONDS, maximum=DURATION_MAX_SECONDS), mode="validation"),
]
_CardName = Annotated[str, StringConstraints(pattern=r"^[ -~]{1,64}$")]


class Preset(StrEnum):
    """The policies that come with the product."""

    DEFAULT = "default"
    PLAIN = "plain"
    FIFO = "fifo"
    ROUND_ROBIN = "round-robin"


class PolicyClass(SpecModel):
    """One class. A class of the preset keeps what is not named here; a new one has it as in ``normal``."""

    alias: ClassName | None = Field(default=None, description="A second name for the class, such as P1; null: none.")
    value: _Value = Field(default=500, description="The priority of a job that names none of its own.")
    own_value_min: _Value = Field(default=300, description="The lowest priority that a job may name itself.")
    own_value_max: _Value = Field(default=680, description="The highest priority that a job may name itself.")
    may_preempt: Literal["yes", "once_aged", "never"] = Field(
        default="yes", description="Whether its jobs evict others: yes, once_aged (after twice the SLA wait) or never."
    )
    mode: PreemptionMode = Field(
        default=PreemptionMode.CHECKPOINT,
        description="What a preemption does to its jobs unless they say otherwise: OFF, CANCEL, REQUEUE, CHECKPOINT.",
    )
    grace: _Duration = Field(default=120.0, description="Time between the stop notice and SIGKILL.")
    grace_max: _Duration | None = Field(default=1800.0, description="The longest grace a job may ask for; null: any.")
    minimum_run: _Duration = Field(
        default=600.0, description="So long after its start a run is not evicted, but by a class that overrides it."
    )
    cool_down: _Duration | None = Field(
        default=None, description="The same for a run after a preemption; null: twice the minimum run."
    )
    overrides_minimum_run: _Switch = Field(
        default=False, description="Whether its jobs evict runs inside their minimum run or cool-down too."
    )
    preemptions_per_day: Annotated[_Whole, Field(ge=0, le=PRIORITY_MAX)] | None = Field(
        default=4, description="So often within 24 hours a job may be preempted; null: any number of times."
    )
    sla_wait: _PositiveDuration | None = Field(
        default=7200.0,
        description="The wait that is aimed at; beyond it a job's queue value grows. null: none, and no aging.",
    )
    placement: Literal["binpack", "spread", "frag"] = Field(
        default="binpack", description="How nodes are chosen: fullest first, emptiest first, least fragmentation."
    )
    restart: _Duration = Field(
        default=30.0, description="The cost of stopping and resuming a run, until it is measured."
    )
    time_limit_max: _PositiveDuration | None = Field(
        default=None, description="The longest time limit a job may ask for; null: any."
    )
    needs_allowance: _Switch = Field(default=False, description="Whether a team must be allowed GPUs in this class.")


class VictimWeights(SpecModel):
    """For ``victims: weighted``: what a set of victims costs; the cheapest set is taken."""

    v: Annotated[_Number, Field(ge=0, le=1e6)] = Field(
        default=1.0, description="Weight of the set's highest preemption value, as a part of the highest own value."
    )
    cost: Annotated[_Number, Field(ge=0, le=1e6)] = Field(
        default=1.0, description="Weight of the set's cost in GPU-hours."
    )


class PolicyFile(SpecModel):
    """A policy: a preset, and what is different from it. Durations are texts such as 90s or 2h, or seconds."""

    preset: Preset = Field(default=Preset.DEFAULT, description="What holds where this file says nothing.")
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}$")] = Field(
        default="custom", description="What this policy is called where several are compared."
    )
    classes: dict[ClassName, PolicyClass | None] = Field(
        default_factory=dict,
        max_length=CLASSES_MAX_ITEMS,
        description="Classes that are added or changed; null takes a class of the preset away.",
    )
    default_class: ClassName = Field(default="normal", description="The class of a job that names none.")
    delta: Annotated[_Whole, Field(ge=1, le=PRIORITY_MAX)] = Field(
        default=10, description="Δ: so much higher must a preemptor's value be than its victim's; at least 1."
    )
    aging_cap: _Value = Field(default=899, description="No queue value grows above it by waiting.")
    aging_points: Annotated[_Number, Field(ge=0, le=PRIORITY_MAX)] = Field(
        default=300.0, description="Points that a job gains with each further SLA wait in the queue; 0: no aging."
    )
    aging_step: Annotated[_Whole, Field(ge=1, le=PRIORITY_MAX)] = Field(
        default=10, description="Points are gained in whole steps of so many."
    )
    promoted_minimum_run: _Duration = Field(
        default=1800.0, description="The minimum run of a run that an aged job won, where its class's is shorter."
    )
    override_after_budget: _Duration = Field(
        default=1800.0,
        description="So long after its start a used-up daily number protects a run from overriding classes too.",
    )
    order: Literal["auto", "submit", "fair"] = Field(
        default="auto",
        description="What orders jobs of equal queue value: submit time, the teams' fair share, "
        "or auto: fair share once a team has a weight other than 1.",
    )
    priorities: _Switch = Field(default=True, description="Whether classes and priorities order the queue at all.")
    preemption: _Switch = Field(default=True, description="Whether anybody is evicted at all.")
    victims: Literal["priority-first", "cost-first", "weighted"] = Field(
        default="priority-first", description="How sets of victims are compared."
    )
    victim_weights: VictimWeights = Field(
        default_factory=VictimWeights, description="The weights of victims: weighted; what is left out stays."
    )
    progress_weight: Annotated[_Number, Field(ge=0, le=1e6)] = Field(
        default=1.0, description="How much more a run costs the further it is: its cost x (1 + weight x progress)."
    )
    backfill: Literal["strict", "off", "preemptible"] = Field(
        default="strict", description="Whether later jobs may use GPUs that an earlier one has reserved, meanwhile."
    )
    empty_seconds: _Duration = Field(
        default=2.0, description="How long a GPU takes to be proven empty, for expected starts."
    )
    hold_expiry: _PositiveDuration = Field(
        default=30.0, description="A hold whose GPUs are all empty ends when nothing has begun to start for so long."
    )
    start_timeout: _PositiveDuration = Field(default=120.0, description="A start that takes longer has failed.")
    backing_off: _PositiveDuration = Field(
        default=60.0, description="After a failed hold or start a job takes no victims for so long, doubling."
    )
    move_holds: _Switch = Field(
        default=True, description="Whether a job that holds GPUs starts on others as soon as they suffice."
    )
    recheck: _PositiveDuration = Field(
        default=60.0, description="So often every waiting job is judged anew whatever happened; a safety net."
    )
    gpu_aliases: dict[_CardName, tuple[_CardName, ...]] = Field(
        default_factory=dict,
        max_length=ALIASES_MAX_ITEMS,
        description="Further names for types of cards: a name, and the types in full that it means.",
    )
    max_shares: Annotated[_Whole, Field(ge=1, le=SHARES_MAX)] = Field(
        default=4, description="How many jobs may share a card; a card in use takes a new number once it is free."
    )
    usage_half_life: _PositiveDuration | None = Field(
        default=None, description="Half-life of a team's past usage in its fair share; null: only present usage counts."
    )
    overdue_max_wait: Literal["cancel", "degrade", "promote"] = Field(
        default="cancel", description="What becomes of a job that has not started within its max_wait."
    )
    overdue_deadline: Literal["cancel", "degrade", "promote"] = Field(
        default="degrade", description="What becomes of a job that has not started by its deadline."
    )
    retry_backoff_max: _Duration = Field(default=3600.0, description="The longest wait between two tries of a job.")
    infrastructure_failures_max: Annotated[_Whole, Field(ge=1, le=RETRIES_MAX)] = Field(
        default=10, description="After so many lost runs in a row that are not its doing, a job is held."
    )

    def document(self) -> dict[str, Any]:
        """What the file says, and nothing else, as plain JSON values; durations in seconds."""
        return self.model_dump(mode="json", exclude_unset=True)
