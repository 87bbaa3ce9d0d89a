"""What a scenario wants: the checks that its file may ask for."""

from typing import Annotated, Literal, Self

from makeway_schemas.job_spec import SpecModel
from pydantic import Field, model_validator

from makeway_simulator.scenario.forms import (
    FieldsTag,
    JobNames,
    Listed,
    Moments,
    Name,
    Number,
    PlainTag,
    Span,
    Time,
    Within,
    Word,
    Words,
    either,
)

Count = Annotated[int, Field(ge=0)]
Counts = Annotated[
    Annotated[Count, PlainTag] | Annotated[dict[Name, Count], FieldsTag],
    either("a number or a mapping of names to numbers"),
]


class Expectation(SpecModel):
    """What has to be so. Checks of a moment look at `at` (to `at` + `within`), at all of `during`, else at the end."""

    at: Time | None = Field(default=None, description="When; checks of the whole look at what was until then.")
    within: Within | None = Field(
        default=None, description="So much later is in time too; of times: so far off. cycle is 5 s."
    )
    during: Span | None = Field(default=None, description="All the time from the first to the second.")
    of: JobNames | None = Field(default=None, description="running, count, evictions, max_running: of these jobs only.")
    only: Literal["virtual", "live"] | None = Field(default=None, description="Asked only there.")
    state: dict[Name, Words] | None = Field(default=None, description="Jobs and their states.")
    running: Annotated[tuple[Name, ...], Listed] | None = Field(
        default=None, description="These jobs run, and no other."
    )
    not_running: JobNames | None = Field(default=None, description="These jobs do not run.")
    count: dict[str, Count] | None = Field(default=None, description="States and how many jobs are in them.")
    granted_mib: Counts | None = Field(default=None, description="MiB leased, in all or per node.")
    usage: dict[str, Number] | None = Field(default=None, description="Teams and the GPUs that they use.")
    capacity: dict[str, Count] | None = Field(default=None, description="GPUs that count, by MIG profile, and whole.")
    reason: dict[Name, Words] | None = Field(
        default=None, description="Jobs and words that the reason of their wait contains; a|b is either."
    )
    priority: dict[Name, int] | None = Field(default=None, description="Jobs and the priority that is shown.")
    node: dict[Name, JobNames] | None = Field(default=None, description="Jobs and the nodes that they run on.")
    evictions: Counts | None = Field(default=None, description="How many, in all or of each job.")
    evicted: JobNames | None = Field(default=None, description="These jobs were evicted, and no other.")
    starts: dict[Name, Count] | None = Field(default=None, description="How many times jobs started.")
    started_at: dict[Name, Moments] | None = Field(default=None, description="The first start, or all starts.")
    noticed_at: dict[Name, Moments] | None = Field(default=None, description="The first stop notice, or all of them.")
    killed_at: dict[Name, Moments] | None = Field(default=None, description="When it was killed, its grace being over.")
    left_at: dict[Name, Moments] | None = Field(default=None, description="The first end of a run, or all of them.")
    ended_at: dict[Name, Moments] | None = Field(default=None, description="When the job came to its end.")
    used: dict[Name, Time] | None = Field(default=None, description="Seconds that its runs have lasted, in all.")
    order: JobNames | None = Field(default=None, description="They start in this order; who never starts is last.")
    first_start: Word | None = Field(default=None, description="No other job starts before it, from `after` on.")
    after: Time = Field(default=0.0, description="From when on first_start counts; later than this.")
    not_before: dict[Name, JobNames] | None = Field(default=None, description="Jobs, and those that start before them.")
    after_end_of: dict[Name, JobNames] | None = Field(default=None, description="Jobs, and those that end before.")
    took_over: dict[Name, JobNames] | None = Field(default=None, description="A job runs on the GPUs that others left.")
    max_running: Count | None = Field(default=None, description="Never do more jobs run at once.")

    @model_validator(mode="after")
    def _said(self) -> Self:
        if self.at is not None and self.during is not None:
            raise ValueError("it says when with `at` or with `during`, not with both")
        empty = sorted(name for name in self.model_fields_set if getattr(self, name) is None)
        if empty:
            raise ValueError(f"{empty[0]} is empty")
        return self
