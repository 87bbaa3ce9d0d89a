"""A policy as a document of plain values, as a file, a request or a row of the database holds it, and back.

The document names a preset and what is different from it. A field of `Policy` or `JobClass` has the same name in the
document, durations without their `_seconds` (`grace: 30.0` is `grace_seconds`). The caller has checked names, types
and bounds (schemas has the model); whether the values fit together `checks.problems` says afterwards.

What holds for a class, first to last: what the document says of it; the preset's class of that name; for a class that
the preset does not have, the document's `normal`, else the preset's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from makeway_policy.model import Mode, Overdue
from makeway_policy.presets import DEFAULT, PRESETS
from makeway_policy.rules import Backfill, JobClass, MayPreempt, Order, Policy, Strategy, VictimOrder

DEFAULT_PRESET: Final = DEFAULT.name
MODEL_CLASS: Final = "normal"
"""What a class that is added does not name is as in this one."""

_SUFFIX: Final = "_seconds"
_KEPT_SUFFIX: Final = frozenset({"empty_seconds"})
_ENUMS: Final[Mapping[str, type[Enum]]] = MappingProxyType(
    {
        "order": Order,
        "victims": VictimOrder,
        "backfill": Backfill,
        "overdue_max_wait": Overdue,
        "overdue_deadline": Overdue,
        "may_preempt": MayPreempt,
        "mode": Mode,
        "placement": Strategy,
    }
)
_DURATIONS: Final = frozenset(
    each.name if each.name in _KEPT_SUFFIX else each.name.removesuffix(_SUFFIX)
    for owner in (Policy, JobClass)
    for each in fields(owner)
    if each.name.endswith(_SUFFIX)
)


def from_document(document: Mapping[str, Any]) -> Policy:
    """The policy that a checked document means. Raises KeyError for a preset or a field that does not exist."""
    preset = PRESETS[document.get("preset", DEFAULT_PRESET)]
    names = {_name(each.name): each.name for each in fields(Policy)}
    given = {names[name]: value for name, value in document.items() if name != "preset"}
    values = {name: _value(name, value) for name, value in given.items() if name not in ("classes", "victim_weights")}
    if given:
        values.setdefault("name", "custom")
    if "classes" in given:
        values["classes"] = _classes(preset, given["classes"])
    if "victim_weights" in given:
        values["victim_weights"] = MappingProxyType({**preset.victim_weights, **given["victim_weights"]})
    return replace(preset, **values)


def to_document(policy: Policy) -> dict[str, Any]:
    """Every value of a policy by its name in a document, without a preset; durations in seconds."""
    return {_name(each.name): _plain(getattr(policy, each.name)) for each in fields(policy)}


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with every value spelled out. It means the same policy."""
    whole = to_document(from_document(document))
    taken_away = {name: None for name, rules in document.get("classes", {}).items() if rules is None}
    return {
        "preset": document.get("preset", DEFAULT_PRESET),
        **whole,
        "classes": {**whole["classes"], **taken_away},
    }


def sources(document: Mapping[str, Any]) -> dict[str, str]:
    """Where each value of the policy comes from, by path: `file`, `preset NAME`, `class normal` or `default`."""
    preset = document.get("preset", DEFAULT_PRESET)
    given = flattened(document)
    found = {}
    for path in flattened(to_document(from_document(document))):
        parts = path.split(".")
        if path in given:
            found[path] = "file"
        elif path == "name" and set(document) - {"preset"}:
            found[path] = "default"
        elif parts[0] == "classes" and parts[1] not in PRESETS[preset].classes:
            found[path] = "default" if parts[2] == "alias" else f"class {MODEL_CLASS}"
        else:
            found[path] = f"preset {preset}"
    return found


def flattened(document: Mapping[str, Any]) -> dict[str, Any]:
    """Each value of a document by its path, in the document's order; a class that is taken away is None itself."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if name == "victim_weights":
            found |= {f"{name}.{inner}": each for inner, each in value.items()}
        elif name == "classes":
            found |= dict(_flattened_classes(value))
        else:
            found[name] = value
    return found


def name_in_document(path: str) -> str:
    """A field's path in a document: `classes.high.grace` for `classes.high.grace_seconds`."""
    return ".".join(_name(part) for part in path.split("."))


def is_duration(path: str) -> bool:
    """Whether the value at a path is a duration, in seconds."""
    return path.rpartition(".")[2] in _DURATIONS


def _classes(preset: Policy, given: Mapping[str, Mapping[str, Any] | None]) -> Mapping[str, JobClass]:
    kept = {name: rules for name, rules in preset.classes.items() if given.get(name, {}) is not None}
    changed = {name: _class(rules, given.get(name) or {}) for name, rules in kept.items()}
    model = changed.get(MODEL_CLASS, preset.classes[MODEL_CLASS])
    added = {
        name: _class(replace(model, name=name, alias=None), values)
        for name, values in given.items()
        if values is not None and name not in kept
    }
    return MappingProxyType({**changed, **added})


def _class(base: JobClass, given: Mapping[str, Any]) -> JobClass:
    names = {_name(each.name): each.name for each in fields(JobClass)}
    return replace(base, **{names[name]: _value(names[name], value) for name, value in given.items()})


def _flattened_classes(classes: Mapping[str, Mapping[str, Any] | None]) -> Iterable[tuple[str, Any]]:
    for name, values in classes.items():
        if values is None:
            yield f"classes.{name}", None
        for inner, value in (values or {}).items():
            yield f"classes.{name}.{inner}", value


def _name(field_name: str) -> str:
    return field_name if field_name in _KEPT_SUFFIX else field_name.removesuffix(_SUFFIX)


def _value(name: str, value: Any) -> Any:
    if name == "mode":
        return Mode(value.lower())
    if name in _ENUMS:
        return _ENUMS[name](value)
    if name == "gpu_aliases":
        return MappingProxyType({alias: tuple(types) for alias, types in value.items()})
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, JobClass):
        return {_name(each.name): _plain(getattr(value, each.name)) for each in fields(value) if each.name != "name"}
    if isinstance(value, Mode):
        return value.value.upper()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value
