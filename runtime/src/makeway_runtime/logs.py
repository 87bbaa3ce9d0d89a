"""Structured logs on stderr: one record a line, whatever text it carries."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog

from makeway_runtime.settings import ServiceSettings
from makeway_runtime.tracing import current_trace_id

_LIBRARY_LEVELS: Final = {"aiokafka": logging.WARNING, "asyncpg": logging.WARNING, "faststream": logging.WARNING}


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
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, library_level in _LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(max(level, library_level))
    structlog.contextvars.bind_contextvars(service=service)


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
