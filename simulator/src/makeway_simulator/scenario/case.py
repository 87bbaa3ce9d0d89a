"""What a scenario file means: one case for each variant, and for each time of a sweep.

A case says everything in full: each node, each job by its own name, each time as a number.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import Any, Final

from makeway_schemas.job_spec import DURATION_MAX_SECONDS

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.document import (
    ActionEntry,
    JobEntry,
    Live,
    RetriesEntry,
    Scenario,
    ScenarioFile,
    Sweep,
    TeamEntry,
)
from makeway_simulator.scenario.nodes import CaseNode, nodes_of
from makeway_simulator.scenario.variants import LISTED, PlacedEntry, changed, entries_of, of_place, varied
from makeway_simulator.scenario.wanted import Expectation
from makeway_simulator.setting import SILENCE_SECONDS

END_SECONDS: Final = 86_400.0
"""A case without `until` is watched for so long at most."""

CARDS_MOST: Final = 20_000
JOBS_MOST: Final = 2000
CYCLE_SECONDS: Final = 5.0
TEAM: Final = "team"
"""The team of a job that names none."""

LIMIT_SPARE_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseJob:
    """A job: when it comes, what it asks for in the words of a submit, and the entry that it is made of."""

    name: str
    at: float
    spec: Mapping[str, Any]
    entry: JobEntry
    dur: float | None = None
    placed: Mapping[str, int] | None = None
    where: str = ""
    """The path of its entry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseAction:
    """What happens at a time."""

    at: float
    entry: ActionEntry
    where: str = ""
    """The path of its entry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One scenario to play. `policy` is what is different from the runner's, as a document.

    `places` has the whole path of each field of a variant's own.
    """

    name: str
    nodes: tuple[CaseNode, ...]
    teams: Mapping[str, TeamEntry]
    groups: Mapping[str, Any]
    jobs: tuple[CaseJob, ...]
    actions: tuple[CaseAction, ...]
    expect: tuple[Expectation, ...]
    policy: Mapping[str, Any]
    until: float
    node_timeout: float = SILENCE_SECONDS
    live: Live | None = None
    places: Mapping[str, str] = field(default_factory=dict)


def cases_of(file: ScenarioFile) -> tuple[Case, ...]:
    """All cases of a file: as it stands, then its variants. Raises ScenarioError."""
    title = file.id or "scenario"
    found = list(_swept(title, file, entries_of(file.jobs or ())))
    names = [variant.name for variant in file.variants]
    for number, variant in enumerate(file.variants):
        where = f"variants[{number}]"
        if variant.name in names[:number]:
            raise ScenarioError(f"{where}.name", f"there is a variant {variant.name} before it")
        own = variant.model_fields_set & {*Scenario.model_fields, "change"}
        places = {name: f"{where}.{name}" for name in own}
        try:
            scenario = varied(file, variant)
            entries = changed(scenario.jobs or (), variant.change)
            cases = _swept(f"{title}, {variant.name}", scenario, entries)
            found.extend(replace(case, places=places) for case in cases)
        except ScenarioError as error:
            raise error.within(places) from error
    return tuple(found)


def _swept(name: str, scenario: Scenario, entries: tuple[PlacedEntry, ...]) -> Iterator[Case]:
    actions = scenario.actions or ()
    sweeps = [action.at for action in actions if isinstance(action.at, Sweep)]
    if not sweeps:
        yield _case(name, scenario, entries, actions)
    elif len(sweeps) > 1:
        raise ScenarioError("actions", "only one action may have a sweep for its time")
    else:
        for at in _times(sweeps[0]):
            fixed = tuple(
                action.model_copy(update={"at": at}) if isinstance(action.at, Sweep) else action for action in actions
            )
            yield _case(f"{name}, at {at:g}", scenario, entries, fixed)


def _times(sweep: Sweep) -> Iterator[float]:
    for step in count():
        at = sweep.start + step * sweep.step
        if at > sweep.to + 1e-9:
            return
        yield round(at, 9)


def _case(name: str, scenario: Scenario, entries: tuple[PlacedEntry, ...], actions: tuple[ActionEntry, ...]) -> Case:
    if scenario.cluster is None or not scenario.cluster.nodes:
        raise ScenarioError("cluster", "there is no node")
    jobs = tuple(job for placed in entries for job in _jobs(placed.entry, placed.where))
    if len(jobs) > JOBS_MOST:
        raise ScenarioError("jobs", f"{len(jobs)} jobs; a scenario has at most {JOBS_MOST}")
    doubled = {name for name, number in Counter(job.name for job in jobs).items() if number > 1}
    if doubled:
        raise ScenarioError("jobs", f"given twice: {', '.join(sorted(doubled))}")
    nodes = tuple(nodes_of(scenario.cluster))
    if sum(node.cards for node in nodes) > CARDS_MOST:
        raise ScenarioError("cluster.nodes", f"a scenario has at most {CARDS_MOST} cards and slices")
    policy = {} if scenario.policy is None else scenario.policy.document()
    if any(team.weight is not None for team in (scenario.teams or {}).values()):
        policy = {"order": "fair", **policy}
    return Case(
        name=name,
        nodes=nodes,
        teams=scenario.teams or {},
        groups=scenario.groups or {},
        jobs=jobs,
        actions=tuple(_actions(actions, scenario.until or END_SECONDS)),
        expect=scenario.expect or (),
        policy=policy,
        until=scenario.until or END_SECONDS,
        node_timeout=scenario.cluster.node_timeout,
        live=scenario.live,
    )


def _actions(entries: Iterable[ActionEntry], until: float) -> Iterator[CaseAction]:
    """Each action, and the end of one that lasts for a time."""
    for number, entry in enumerate(entries):
        at, where = float(_fixed(entry.at)), f"actions[{number}]"
        yield CaseAction(at=at, entry=entry, where=where)
        if entry.cut_network is not None and entry.for_ is not None:
            ends = min(at + entry.for_, until)
            yield CaseAction(at=ends, entry=ActionEntry(at=ends, restore_network=entry.cut_network), where=where)


def _fixed(at: float | Sweep) -> float:
    return at.start if isinstance(at, Sweep) else at


def _jobs(entry: JobEntry, where: str) -> Iterator[CaseJob]:
    try:
        found = notation.names(entry.id)
    except ValueError as error:
        raise ScenarioError(f"{where}.id", str(error)) from error
    for place, name in enumerate(found):
        one = {field_name: of_place(entry, field_name, place, len(found), where) for field_name in LISTED}
        dur = one["dur"]
        if dur is not None and one["time_limit"] is not None and not 0 <= dur < inf:
            raise ScenarioError(f"{where}.dur", f"{dur} is no number of seconds of 0 or more")
        yield CaseJob(
            name=name,
            at=float(one["at"]),
            spec=_spec(entry, one),
            entry=entry,
            dur=dur,
            placed=one["placed"],
            where=where,
        )


def _spec(entry: JobEntry, one: Mapping[str, Any]) -> dict[str, Any]:
    """The job in the words of a submit; only what is said."""
    gang = notation.gang(entry.members)
    members, gpus = gang if gang is not None else (entry.members, one["gpus"])
    limit = one["time_limit"]
    if limit is None and one["dur"] is not None:
        limit = _limit(entry, one["dur"])
    needs = {
        "nodes": entry.needs, "exclude_nodes": entry.exclude, "labels": entry.labels, "affinity": entry.affinity,
        "anti_affinity": entry.anti_affinity,
    }  # fmt: skip
    constraints = {name: _listed(value) for name, value in needs.items() if value}
    preemption = {"grace": one["grace"], "mode": entry.mode, "exempt_after": entry.exempt_after}
    given = {
        "team": one["team"],
        "class": entry.class_,
        "priority": one["pri"],
        "gpus": gpus,
        "members": members,
        "distinct_nodes": entry.distinct_nodes or None,
        "min_vram_mib": notation.mib(entry.vram),
        "vram_mib": entry.vram_mib,
        "shares": entry.shares,
        "mig": entry.slice,
        "gpu_type": entry.type,
        "cpus": entry.cpus,
        "memory": notation.mib(entry.memory),
        "labels": entry.own_labels or None,
        "topology": entry.topology,
        "constraints": constraints or None,
        "time_limit": limit,
        "preemptible": None if entry.preemptible else False,
        "preemption": {name: value for name, value in preemption.items() if value is not None} or None,
        "deadline": entry.deadline,
        "on_deadline": entry.on_deadline,
        "max_wait": entry.max_wait,
        "on_max_wait": entry.on_max_wait,
        "begin_at": entry.begin_at,
        "group": entry.group,
    }
    return {name: value for name, value in given.items() if value is not None}


def _limit(entry: JobEntry, dur: float) -> float:
    """Room for each try that fails at its own end, and a little more; of what a submit refuses, that itself."""
    tries = 1 + (entry.retries.max if isinstance(entry.retries, RetriesEntry) else entry.retries)
    once = dur + (LIMIT_SPARE_SECONDS if dur >= 0 else 0)
    return max(once, min(once + (tries - 1) * dur, DURATION_MAX_SECONDS))


def _listed(value: Any) -> Any:
    return list(notation.names(value)) if isinstance(value, str | tuple) else value
