"""A scenario as its file says it. Every unknown field is refused by name.

Fields of a job that a submit would refuse (a negative number of GPUs) are taken as they are: it is the scenario's
point that they are refused. Times are seconds since the scenario starts.
"""

from typing import Annotated, Any, Final, Literal, Self

from makeway_schemas.job_spec import SpecModel
from makeway_schemas.policy_file import PolicyFile
from pydantic import Field, model_validator

from makeway_simulator.scenario.forms import (
    AnyNumber,
    AnyNumbers,
    AnySeconds,
    AnySecondsEach,
    FieldsTag,
    GpuAmount,
    GpuCounts,
    JobNames,
    Listed,
    ListTag,
    MemberCount,
    Moment,
    Name,
    Named,
    Period,
    PlainTag,
    Slices,
    Switch,
    Time,
    Word,
    Words,
    either,
)
from makeway_simulator.scenario.wanted import Expectation
from makeway_simulator.setting import SILENCE_SECONDS

CARDS_MOST: Final = 1024
"""Of a node."""

GIB_MOST: Final = 1_000_000

CASES_MOST: Final = 1000
"""Of a sweep."""


class Card(SpecModel):
    """What cards are like; of a node, or of all nodes that do not say it themselves."""

    type: str | None = Field(default=None, description="The cards' type.")
    vram: float | None = Field(default=None, gt=0, le=GIB_MOST, description="Memory of a card in GiB.")
    vram_mib: int | None = Field(default=None, gt=0, le=GIB_MOST * 1024, description="Memory of a card in MiB.")
    sharing: Switch | None = Field(default=None, description="Whether jobs may share a card; they may.")
    slices: Slices | None = Field(default=None, description="How each card is cut: MIG profile and number.")
    cpus: float | None = Field(default=None, ge=0, description="CPUs of a node; without them they are not counted.")
    memory: float | None = Field(default=None, ge=0, le=GIB_MOST, description="Memory of a node in GiB.")
    linked: int | None = Field(default=None, ge=1, le=CARDS_MOST, description="NVLink joins so many cards in a row.")
    start_delay: Time | None = Field(default=None, description="A start takes so long.")


class NodeEntry(Card):
    """One node."""

    name: Word = Field(description="The node's name.")
    gpus: int | None = Field(default=None, ge=0, le=CARDS_MOST, description="How many cards it has.")
    labels: dict[str, str] = Field(default_factory=dict, description="Its labels.")


NodeForms = Annotated[
    Annotated[str, PlainTag] | Annotated[NodeEntry, FieldsTag], either("a node's name or a mapping of fields")
]


class ClusterEntry(Card):
    """The nodes."""

    nodes: Annotated[tuple[NodeForms, ...], Listed] = Field(description="Names, or nodes in full.")
    node_timeout: Time = Field(default=SILENCE_SECONDS, description="A node not heard for so long is UNKNOWN.")
    gpus_each: int = Field(default=1, ge=0, le=CARDS_MOST, description="Cards of a node that does not say it itself.")


class TeamEntry(SpecModel):
    """A team's rights."""

    quota: GpuAmount = Field(default=0.0, description="GPUs that are guaranteed, or per cent of the pool: 25%.")
    borrow: Switch = Field(default=True, description="no: the quota is the limit too.")
    limit: GpuAmount | None = Field(default=None, description="GPUs that it may use at most.")
    weight: float | None = Field(default=None, ge=0, description="Its share; where any team has one, order is fair.")
    user_limit: GpuAmount | None = Field(default=None, description="GPUs that each of its users may use.")
    class_limits: dict[str, GpuAmount] = Field(default_factory=dict, description="GPUs that it may use per class.")


class GroupEntry(SpecModel):
    """A disruption group."""

    max_down: int | None = Field(default=None, ge=0, description="So many of its jobs may be down.")
    min_available: int | None = Field(default=None, ge=0, description="So many of its jobs stay up.")
    hard: bool = Field(default=True, description="false: it only ranks victims.")

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.max_down is None) == (self.min_available is None):
            raise ValueError("a group has either max_down or min_available")
        return self


class Behaviour(SpecModel):
    """How a job's process behaves."""

    leaves_after: Moment | None = Field(
        default=None,
        description="After a notice; never: it has to be killed. Else it leaves with the end of its grace.",
    )
    declares_done: bool = Field(default=False, description="When it leaves after a notice, it says that it is done.")
    exit_code: int = Field(default=0, ge=0, le=255, description="Of its own end; not 0: it fails.")
    unkillable: bool = Field(default=False, description="Its process stays on the card whatever is done to it.")


class Every(SpecModel):
    """Times for the jobs of a range, one after the other."""

    start: Time = Field(default=0.0, alias="from", description="Of the first.")
    every: Period = Field(description="From one to the next.")


Retried = Annotated[int, Field(ge=0, le=1000)]
Placed = dict[str, Annotated[int, Field(ge=1, le=CARDS_MOST)]]


class RetriesEntry(SpecModel):
    """What becomes of a job that failed."""

    max: Retried = Field(default=0, description="So many times it is tried again.")
    backoff: Time = Field(default=10.0, description="The first wait; it doubles.")
    exit_codes: tuple[int, ...] = Field(default=(), description="Only after these; none: after any.")


class JobEntry(SpecModel):
    """One job, or one for each name of a range. A list of values gives one to each name."""

    id: Named = Field(description="Its name, or a range of names such as job-1..job-4.")
    at: Annotated[
        Annotated[Time, PlainTag] | Annotated[tuple[Time, ...], ListTag] | Annotated[Every, FieldsTag],
        either("a time, a list of times, or {from, every}"),
    ] = Field(default=0.0, description="When it is submitted.")
    team: Words | None = Field(default=None, description="Its team.")
    user: str = Field(default="", description="Its user.")
    class_: str | None = Field(default=None, alias="class", description="Its class.")
    pri: AnyNumbers = Field(default=None, description="Its own priority; without it, its class's value.")
    gpus: GpuCounts = Field(default=None, description="GPUs, or min..max; of a gang, those of each member.")
    members: MemberCount = Field(default=None, description="A gang: 4 x 1 is four members with one GPU each.")
    distinct_nodes: bool = Field(default=False, description="Whether each member needs a node of its own.")
    one_node: bool | None = Field(default=None, description="true: as every job without members.")
    vram: AnyNumber = Field(default=None, description="Whole cards with at least so many GiB.")
    vram_mib: AnyNumber = Field(default=None, description="A share of so many MiB of a card.")
    shares: AnyNumber = Field(default=None, description="So many slots of a card.")
    whole: bool | None = Field(default=None, description="true: a whole card, as without it.")
    slice: str | None = Field(default=None, description="A MIG profile.")
    type: str | None = Field(default=None, description="The cards' type.")
    cpus: float | None = Field(default=None, description="CPUs.")
    memory: float | None = Field(default=None, description="Memory in GiB.")
    needs: JobNames | None = Field(default=None, description="The nodes that it may run on.")
    exclude: JobNames | None = Field(default=None, description="The nodes that it may not run on.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels that its node must have.")
    own_labels: dict[str, str] = Field(default_factory=dict, description="Its own labels, for the wishes of others.")
    affinity: dict[str, str] = Field(default_factory=dict, description="Labels of nodes or jobs that it wants near.")
    anti_affinity: dict[str, str] = Field(default_factory=dict, description="Labels that it does not want near.")
    topology: Literal["require", "prefer", "any"] | None = Field(
        default=None, description="Whether its GPUs must, should or need not be linked."
    )
    dur: AnySecondsEach = Field(default=None, description="How long it runs by itself, over all its runs.")
    time_limit: AnySecondsEach = Field(default=None, description="Default: dur for each try, and 2 s more.")
    grace: AnySecondsEach = Field(default=None, description="Its grace.")
    preemptible: bool = Field(default=True, description="Whether others may evict it.")
    mode: Literal["OFF", "CANCEL", "REQUEUE", "CHECKPOINT"] | None = Field(default=None, description="Its mode.")
    deadline: AnySeconds = Field(default=None, description="It has to have started by then.")
    on_deadline: Literal["cancel", "degrade", "promote"] | None = Field(default=None, description="What follows else.")
    max_wait: AnySeconds = Field(default=None, description="It has to have started after so long.")
    on_max_wait: Literal["cancel", "degrade", "promote"] | None = Field(default=None, description="What follows else.")
    begin_at: AnySeconds = Field(default=None, description="It does not start before.")
    exempt_after: AnySeconds = Field(default=None, description="After so long a run is no victim any more.")
    group: str | None = Field(default=None, description="Its disruption group.")
    retries: Annotated[
        Annotated[Retried, PlainTag] | Annotated[RetriesEntry, FieldsTag],
        either("a number or {max, backoff, exit_codes}"),
    ] = Field(default=0, description="What becomes of it when it fails.")
    behaviour: Behaviour = Field(default_factory=Behaviour, description="How its process behaves.")
    placed: (
        Annotated[
            Annotated[Placed, FieldsTag] | Annotated[tuple[Placed, ...], ListTag],
            either("a mapping of nodes to numbers, or a list of such"),
        ]
        | None
    ) = Field(default=None, description="It runs already when it comes: members (of a job without: GPUs) on each node.")


class Sweep(SpecModel):
    """The scenario is played once for each of these times."""

    start: Time = Field(alias="from", description="The first time.")
    to: Time = Field(description="The last time.")
    step: Period = Field(description="From one to the next.")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.to < self.start:
            raise ValueError("a sweep goes from a time to a later one")
        if (self.to - self.start) / self.step >= CASES_MOST:
            raise ValueError(f"a sweep is of at most {CASES_MOST} times")
        return self


class Layout(SpecModel):
    """How all cards of a node are cut from now on."""

    node: Word = Field(description="The node.")
    slices: Slices = Field(description="MIG profiles and how many of each a card has; none: whole cards.")


class ActionEntry(SpecModel):
    """Something that happens at a time: the time, and what it is (one of the others)."""

    at: Annotated[Annotated[Time, PlainTag] | Annotated[Sweep, FieldsTag], either("a time or {from, to, step}")] = (
        Field(description="When; a sweep plays the scenario once for each time.")
    )
    cancel: JobNames | None = Field(default=None, description="Somebody cancels jobs.")
    set_priority: dict[Name, int | None] | None = Field(default=None, description="An admin's priorities; null: none.")
    refused: bool = Field(default=False, description="The action has to be refused.")
    kill: Literal["scheduler"] | None = Field(default=None, description="The scheduler is gone, from now on.")
    signal: Literal["hard"] | None = Field(default=None, description="How it is killed.")
    start: Literal["scheduler"] | None = Field(default=None, description="A new scheduler is there.")
    delete_finished_records: Literal["all"] | None = Field(default=None, description="Records of ended jobs go.")
    preempt: JobNames | None = Field(default=None, description="An admin preempts jobs by hand.")
    force: bool = Field(default=False, description="preempt, drain: what protects a run is overruled.")
    drain: JobNames | None = Field(default=None, description="Nodes give up what runs there.")
    add_node: NodeEntry | None = Field(default=None, description="A node joins.")
    cordon: JobNames | None = Field(default=None, description="Nothing new on these nodes.")
    uncordon: JobNames | None = Field(default=None, description="They may be used again.")
    cut_network: JobNames | None = Field(default=None, description="These nodes are not heard.")
    for_: Period | None = Field(default=None, alias="for", description="cut_network: so long; else until restored.")
    restore_network: JobNames | None = Field(default=None, description="They are heard again.")
    declare_dead: JobNames | None = Field(default=None, description="These nodes, and what ran there, are lost.")
    quarantine: JobNames | None = Field(default=None, description="GPUs that are not to be used: node-a/0.")
    release: JobNames | None = Field(default=None, description="GPUs that are well again.")
    report_layout: Layout | None = Field(default=None, description="A node reports other MIG instances.")
    set_team: dict[str, TeamEntry] | None = Field(default=None, description="Teams get these rights.")
    set_policy: PolicyFile | None = Field(default=None, description="The policy changes in this.")


class Live(SpecModel):
    """How the scenario is played on a live cluster."""

    scale: Annotated[float, Field(gt=0, le=1)] = Field(default=0.1, description="All times are multiplied by it.")


class Scenario(SpecModel):
    """What a file and a variant of it have in common."""

    policy: PolicyFile | None = Field(default=None, description="What is different from the runner's policy.")
    cluster: ClusterEntry | None = Field(default=None, description="The nodes.")
    teams: dict[str, TeamEntry] | None = Field(default=None, description="The teams' rights.")
    groups: dict[str, GroupEntry] | None = Field(default=None, alias="budgets", description="Disruption groups.")
    jobs: Annotated[tuple[JobEntry, ...], Listed] | None = Field(
        default=None, description="The jobs, in the order of their admission."
    )
    actions: Annotated[tuple[ActionEntry, ...], Listed] | None = Field(default=None, description="What happens else.")
    until: Period | None = Field(default=None, description="So long it is watched.")
    expect: Annotated[tuple[Expectation, ...], Listed] | None = Field(default=None, description="What has to be so.")
    live: Live | None = Field(default=None, description="That it can be played on a live cluster.")


class Variant(Scenario):
    """The scenario once more, with what is different. A field that is given takes the place of the whole field."""

    name: Word = Field(description="What it is called.")
    change: dict[Name, dict[str, Any]] = Field(
        default_factory=dict, description="Jobs (or all) and fields of theirs that are different."
    )


class ScenarioFile(Scenario):
    """A whole file."""

    id: str = Field(default="", description="What it is called.")
    title: str = Field(default="", description="What it is about, in a sentence.")
    variants: Annotated[tuple[Variant, ...], Listed] = Field(
        default=(), description="The same once more, with something different."
    )
