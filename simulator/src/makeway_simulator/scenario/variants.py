"""The jobs of a scenario's variants: what stands in its file, with the fields that the variant changes.

A change of all names of an entry changes the entry. One of some of its names, or of more than these, makes an entry of
each name first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from makeway_policy.quantities import quantity
from pydantic import ValidationError

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.document import Every, JobEntry, Scenario, ScenarioFile, Variant
from makeway_simulator.scenario.forms import TAGS

LISTED: Final = ("at", "team", "pri", "gpus", "dur", "time_limit", "grace", "placed")
"""Fields that may have a value for each name of an entry."""

_ALL: Final = "all"

Change = Mapping[str, Mapping[str, Any]]
"""Of names, a range of them or all: fields and their values as the file has them."""


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """An entry, or what a variant makes of it, and the path of the one that stands in the file."""

    entry: JobEntry
    where: str


def entries_of(jobs: tuple[JobEntry, ...]) -> tuple[PlacedEntry, ...]:
    """The entries as they stand."""
    return tuple(PlacedEntry(entry, f"jobs[{number}]") for number, entry in enumerate(jobs))


def varied(file: ScenarioFile, variant: Variant) -> Scenario:
    """The scenario with the variant's own fields; what it changes of single jobs is left to `changed`."""
    given = {name: getattr(variant, name) for name in variant.model_fields_set & set(Scenario.model_fields)}
    return file.model_copy(update={"live": None, **given})


def changed(jobs: tuple[JobEntry, ...], change: Change) -> tuple[PlacedEntry, ...]:
    """The entries with what is different of them. Raises ScenarioError."""
    known = {name for job in jobs for name in notation.names(job.id)}
    for target in change:
        if target != _ALL and not known.issuperset(notation.names(target)):
            raise ScenarioError(f"change.{target}", "there is no such job")
    return tuple(
        PlacedEntry(entry, placed.where)
        for placed in entries_of(jobs)
        for entry in _changed(placed.entry, placed.where, change)
    )


def of_place(entry: JobEntry, name: str, place: int, size: int, where: str) -> Any:
    """The value of a field for one of the entry's `size` names. Raises ScenarioError where there are too few."""
    given = getattr(entry, name)
    if isinstance(given, Every):
        return given.start + place * given.every
    if not isinstance(given, list | tuple):
        return given
    if len(given) != size:
        raise ScenarioError(f"{where}.{name}", f"{quantity(len(given), 'value')} for {quantity(size, 'name')}")
    return given[place]


def _changed(job: JobEntry, where: str, change: Change) -> Iterator[JobEntry]:
    names = notation.names(job.id)
    touching = [target for target in change if target == _ALL or not set(names).isdisjoint(notation.names(target))]
    if all(target == _ALL or notation.names(target) == names for target in touching):
        found = _with(job, {target: change[target] for target in touching})
        for target in touching:
            for field in (each for each in LISTED if each in change[target]):
                of_place(found, field, 0, len(names), f"change.{target}")
        yield found
        return
    for place, name in enumerate(names):
        mine = [target for target in touching if target == _ALL or name in notation.names(target)]
        values = {target: _of_name(target, change[target], name, names) for target in mine}
        yield _with(_one(job, name, place, len(names), where), values)


def _of_name(target: str, given: Mapping[str, Any], name: str, entry: tuple[str, ...]) -> Mapping[str, Any]:
    """What a change says of one of its names; of `all`, each entry's lists have a value for each of its names."""
    names = entry if target == _ALL else notation.names(target)
    wanted = _with(JobEntry(id=name), {target: given})
    one = _one(wanted, name, names.index(name), len(names), f"change.{target}")
    return one.model_dump(exclude_unset=True, by_alias=True, exclude={"id"})


def _one(job: JobEntry, name: str, place: int, size: int, where: str) -> JobEntry:
    """The entry of one of its names alone."""
    values: dict[str, Any] = {
        each: of_place(job, each, place, size, where) for each in LISTED if each in job.model_fields_set
    }
    return job.model_copy(update={**values, "id": name})


def _with(job: JobEntry, change: Change) -> JobEntry:
    """The entry with all that is said of it, the last word of each field."""
    found = job
    for target, given in change.items():
        values = {**found.model_dump(exclude_unset=True, by_alias=True), **given}
        try:
            found = JobEntry.model_validate(values)
        except ValidationError as error:
            detail = error.errors()[0]
            place = ".".join(str(part) for part in detail["loc"] if part not in TAGS)
            said = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
            problem = "unknown field" if detail["type"] == "extra_forbidden" else said
            raise ScenarioError(f"change.{target}.{place}", problem) from error
    return found
