"""Reads a file into plain values and remembers where each came from.

Only what jobs and policies need is understood: mappings, lists and scalars of YAML 1.2's core schema, where ``no`` is
a text and ``1:30`` is no number. Doubled keys, anchors, tags and several documents are refused: each is a mistake far
more often than it is meant, and an alias may also make a small file endless.
"""

import errno
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from makeway_schemas.whole_numbers import read_whole
from yaml.reader import ReaderError

from makeway.errors import SpecInvalid, SpecProblem

Location = tuple[str | int, ...]

MAX_BYTES: Final = 1024 * 1024
_MAX_DEPTH: Final = 20

_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.IGNORECASE)
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LEADING_TABS = re.compile(r"(?m)^\t+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A position in the file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The values of a file and where each key or item stands."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Location, Place] = field(default_factory=dict)


def load(name: str, what: str) -> Document:
    """Reads a file; ``-`` is stdin. ``what`` says what it should be. Raises SpecInvalid."""
    if not name:
        raise SpecInvalid((SpecProblem(field="", message="the name of the file is empty"),))
    source = "stdin" if name == "-" else name
    try:
        raw = _read_stdin() if name == "-" else _read(Path(name))
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecInvalid((SpecProblem(field="", message=f"cannot be read: {reason}", source=source),)) from error
    if len(raw) > MAX_BYTES:
        raise SpecInvalid((SpecProblem(field="", message=f"is over {MAX_BYTES} bytes", source=source),))
    return parse(text, source, what)


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "stdin is closed")
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def parse(text: str, source: str, what: str) -> Document:
    """Parses a file's text. Raises SpecInvalid with file, line and column."""
    reader = _Reader(source)
    root = reader.compose(text)
    if not isinstance(root, yaml.MappingNode):
        raise reader.problem(root, "", what)
    return Document(source=source, values=reader.mapping(root, ()), places=reader.places)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.places: dict[Location, Place] = {}

    def problem(self, node: yaml.Node | yaml.Event | None, name: str, message: str) -> SpecInvalid:
        mark = node.start_mark if node is not None else None
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return SpecInvalid((SpecProblem(field=name, message=message, source=self.source, line=line, column=column),))

    def compose(self, text: str) -> yaml.Node | None:
        # JSON may be indented with tabs, YAML may not; a tab at the start of a line is never inside a JSON text.
        plain = _LEADING_TABS.sub(lambda tabs: " " * len(tabs[0]), text) if text.lstrip().startswith("{") else text
        try:
            depth = 0
            for event in yaml.parse(plain, Loader=yaml.SafeLoader):
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                self._check_event(event, depth)
            return yaml.compose(plain, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            message = error.problem or "this is no YAML"
            raise SpecInvalid((_problem_at(self.source, line, column, message),)) from error
        except ReaderError as error:
            line = plain.count("\n", 0, error.position) + 1
            column = error.position - plain.rfind("\n", 0, error.position)
            message = f"the character U+{ord(plain[error.position]):04X} is no text"
            raise SpecInvalid((_problem_at(self.source, line, column, message),)) from error

    def _check_event(self, event: yaml.Event, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise self.problem(event, "", f"nested deeper than {_MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self.problem(event, "", "anchors and aliases (& and *) are not understood; quote the text")
        if getattr(event, "tag", None) is not None:
            raise self.problem(event, "", "tags (!) are not understood; quote the text")

    def mapping(self, node: yaml.MappingNode, path: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.problem(key_node, dotted(path), "a field's name is a text")
            key = _join_surrogates(key_node.value)
            where = (*path, key)
            if key in values:
                first = self.places[where]
                raise self.problem(key_node, dotted(where), f"given twice; first in line {first.line}")
            self.places[where] = _place(key_node)
            values[key] = self.value(value_node, where)
        return values

    def value(self, node: yaml.Node, path: Location) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return list(self._items(node, path))
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        raise self.problem(node, dotted(path), "neither a mapping, a list nor a scalar")

    def _items(self, node: yaml.SequenceNode, path: Location) -> Iterator[Any]:
        for at, item in enumerate(node.value):
            self.places[(*path, at)] = _place(item)
            yield self.value(item, (*path, at))


def dotted(path: Location) -> str:
    """``preemption.grace``, ``command[2]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problem_at(source: str, line: int, column: int, message: str) -> SpecProblem:
    return SpecProblem(field="", message=message, source=source, line=line, column=column)


def _place(node: yaml.Node) -> Place:
    return Place(line=node.start_mark.line + 1, column=node.start_mark.column + 1)


def _scalar(node: yaml.ScalarNode) -> Any:
    text = node.value
    if node.style is not None:
        return _join_surrogates(text)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return read_whole(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _join_surrogates(text: str) -> str:
    """JSON writes a character beyond U+FFFF as two escapes, which YAML takes for two characters."""
    return _SURROGATES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
