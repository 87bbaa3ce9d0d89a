"""Structured logs on stderr: one record a line, whatever text it carries."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog

from makeway_runtime.settings import ServiceSettings
from makeway_runtime.tracing import current_trace_id

_LIBRARY_LEVELS: Final = {
    "aiokafka": logging.WARNING,
    "asyncpg": logging.WARNING,
    "faststream": logging.WARNING,
    # It warns of every login without TLS, which is how the embedded broker on loopback works.
    "aiokafka.conn": logging.ERROR,
}

REPEAT_SECONDS: Final = 10.0


def configure(settings: ServiceSettings, *, service: str) -> None:
    """Sets up structlog and the standard library's logging, which libraries use, to write alike."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_id,
        structlog.processors.format_exc_info,
        one_line,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(_Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, library_level in _LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(max(level, library_level))
    structlog.contextvars.bind_contextvars(service=service)


class _Repeats(logging.Filter):
    """Lets a library say the same thing once in ten seconds: aiokafka repeats itself while a broker is away."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(tuple(_LIBRARY_LEVELS)):
            return True
        # The template, not the text: a library has few of them, so this stays small.
        said = (record.name, str(record.msg))
        now = time.monotonic()
        if now - self._said_at.get(said, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._said_at[said] = now
        return True


def one_line(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Escapes control characters, so that text from outside can neither add a record nor steer a terminal."""
    for name, value in event.items():
        if name.startswith("_"):
            continue
        if isinstance(value, str):
            event[name] = _escaped(value)
        elif isinstance(value, bytes):
            event[name] = _escaped(value.decode(errors="backslashreplace"))
    return event


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _add_trace_id(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    trace_id = current_trace_id()
    if trace_id is not None:
        event["trace_id"] = trace_id
    return event
