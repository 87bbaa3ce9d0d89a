"""A flag for each field of ``JobSpec``, made from the model: what the schema gains, the command gains."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, get_args, get_origin

import typer
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.whole_numbers import read_whole
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from makeway.errors import SpecInvalid, SpecProblem

_WHOLE = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]+")
_SINGULAR: Final = {"labels": "label"}
_SHORT: Final = {"gpus": ("-g",), "name": ("-n",), "env": ("-e",)}
_POSITIONAL: Final = frozenset({"command"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One flag: the parameter that typer passes, the field it fills and how its texts are read."""

    parameter: str
    path: tuple[str, ...]
    names: tuple[str, ...]
    annotation: Any
    read: Callable[[Any], Any]


def spec_flags() -> tuple[Flag, ...]:
    """All flags, in the order of the model's fields; a field of a nested model is ``--outer-inner``."""
    return tuple(_flags_of(JobSpec, ()))


def _flags_of(model: type[BaseModel], outer: tuple[str, ...]) -> list[Flag]:
    flags: list[Flag] = []
    for attribute, info in model.model_fields.items():
        name = info.alias or attribute
        kinds = _kinds(info.annotation)
        nested = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if nested is not None:
            flags += _flags_of(nested, (*outer, name))
        elif name not in _POSITIONAL:
            flags.append(_flag(info, (*outer, name), kinds))
    return flags


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The plain types behind optionals and annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin is UnionType or str(origin) == "typing.Union":
        return tuple(kind for part in get_args(annotation) for kind in _kinds(part))
    return (origin or annotation,)


def _flag(info: FieldInfo, path: tuple[str, ...], kinds: tuple[Any, ...]) -> Flag:
    name = path[-1]
    dashed = "-".join(path).replace("_", "-")
    names: tuple[str, ...] = (f"--{dashed}", *_SHORT.get(dashed, ()))
    kind: Any = str
    read: Callable[[Any], Any] = _as_number if int in kinds or float in kinds else _as_text
    metavar: str | None = _metavar(name, kinds)
    if dict in kinds:
        names = (f"--{_SINGULAR.get(dashed, dashed)}", *_SHORT.get(dashed, ()))
        kind, read, metavar = list[str], _PAIRS.get(name, _pairs), "NAME=VALUE"
    elif words := _words(kinds):
        read = partial(_as_word, words)
    elif tuple in kinds:
        each = _as_number if name == "exit_codes" else _as_text
        kind, read, metavar = list[str], lambda texts: tuple(each(text) for text in texts), "VALUE"
    elif bool in kinds:
        names, kind, read, metavar = (f"--{dashed}/--no-{dashed}",), bool, _as_text, None
    elif name == "script":
        read, metavar = _file_text, "FILE"
    option = typer.Option(*names, help=info.description, metavar=metavar, show_default=False)
    annotation = Annotated[kind | None, option]
    return Flag(
        parameter="_".join(path).replace("class", "class_"), path=path, names=names, annotation=annotation, read=read
    )


def _metavar(name: str, kinds: tuple[Any, ...]) -> str:
    if datetime in kinds:
        return "DATE-AND-TIME"
    if float in kinds:
        return "NUMBER" if name == "cpus" else "DURATION"
    if int in kinds:
        return "MIB" if name.endswith("_mib") or name == "memory" else "NUMBER"
    return "TEXT"


def _words(kinds: tuple[Any, ...]) -> tuple[str, ...]:
    """The words that a field chooses from; none where it does not."""
    return tuple(word.value for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum) for word in kind)


def _as_word(words: tuple[str, ...], text: str) -> str:
    """The word that is meant, in any case; anything else goes on as typed, for the model to refuse by name."""
    return next((word for word in words if word.lower() == text.lower()), text)


def _as_text(value: Any) -> Any:
    return value


def _as_number(text: str) -> int | float | str:
    """A number where it is one; anything else goes on as typed, for the model to read (2h) or refuse by name."""
    if _WHOLE.fullmatch(text):
        return read_whole(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def _pairs(texts: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found:
            raise SpecInvalid((SpecProblem(field="--label", message=f"{text!r} is not NAME=VALUE"),))
        values[name] = value
    return values


def _environment(texts: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` as it is; ``NAME`` alone takes the submitter's own value."""
    values: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found and name not in os.environ:
            raise SpecInvalid((SpecProblem(field="--env", message=f"{name} is not set here; give {name}=VALUE"),))
        values[name] = value if found else os.environ[name]
    return values


def _file_text(name: str) -> str:
    if name == "-" and sys.stdin is None:
        raise SpecInvalid((SpecProblem(field="--script", message="stdin is closed"),))
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecInvalid((SpecProblem(field="--script", message=f"{name} cannot be read: {error}"),)) from error


_PAIRS: Final = {"env": _environment}


def collect(flags: tuple[Flag, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given as flags, as a nested mapping like a file's."""
    values: dict[str, Any] = {}
    for flag in flags:
        raw = given.get(flag.parameter)
        if raw is None or raw == []:
            continue
        inner = values
        for part in flag.path[:-1]:
            inner = inner.setdefault(part, {})
        inner[flag.path[-1]] = flag.read(raw)
    return values


def with_flags(flags: tuple[Flag, ...], function: Callable[..., None]) -> Callable[..., None]:
    """Gives the function, whose last parameter is ``**given``, one keyword parameter for each flag."""
    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(f.parameter, keyword, default=None, annotation=f.annotation) for f in flags]
    function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
    return function
