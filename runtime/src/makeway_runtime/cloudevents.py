"""CloudEvents 1.0 in Kafka's binary mode: attributes are headers, the value is the data alone.

Headers of other producers are foreign input: whatever they hold, `from_headers` either returns an event or raises
`InvalidEvent` with a sentence; nothing else.

Source: the CloudEvents specification 1.0.2 and its Kafka protocol binding, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from makeway_runtime.errors import InvalidEvent

SPEC_VERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/json"
MAX_ATTRIBUTE_BYTES: Final = 1024

_PLAIN_HEADERS: Final = frozenset({"content-type", "traceparent", "tracestate"})
_REQUIRED: Final = ("id", "type", "source", "time")

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHeaders:
    """The attributes of one event. `time` is aware and UTC."""

    id: str
    type: str
    source: str
    time: datetime
    subject: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    dataschema: str | None = None
    content_type: str = CONTENT_TYPE
    extensions: Mapping[str, str] = field(default_factory=dict)


_FIELD_OF_ATTRIBUTE: Final = {
    "id": "id",
    "type": "type",
    "source": "source",
    "subject": "subject",
    "dataschema": "dataschema",
    "correlationid": "correlation_id",
    "causationid": "causation_id",
}


def to_headers(event: EventHeaders) -> Headers:
    """Returns Kafka headers, in a fixed order."""
    attributes = {"specversion": SPEC_VERSION, "time": event.time.isoformat()}
    for attribute, name in _FIELD_OF_ATTRIBUTE.items():
        value = getattr(event, name)
        if value is not None:
            attributes[attribute] = value
    attributes.update(event.extensions)
    headers = [(f"ce_{name}", value.encode()) for name, value in attributes.items()]
    headers.append(("content-type", event.content_type.encode()))
    for name, value in (("traceparent", event.traceparent), ("tracestate", event.tracestate)):
        if value is not None:
            headers.append((name, value.encode()))
    return tuple(headers)


def from_headers(headers: Iterable[tuple[str, bytes | None]]) -> EventHeaders:
    """Returns the event's attributes. Raises InvalidEvent; headers that are none of ours are ignored unread."""
    attributes, plain = _decode(headers)
    version = attributes.pop("specversion", None)
    if version is None:
        raise InvalidEvent("header ce_specversion is missing")
    if not version.startswith("1."):
        raise InvalidEvent(f"ce_specversion is {version!r}, not 1.x")
    for name in _REQUIRED:
        if not attributes.get(name):
            raise InvalidEvent(f"header ce_{name} is missing or empty")
    known = {name: attributes.pop(attribute, None) for attribute, name in _FIELD_OF_ATTRIBUTE.items()}
    return EventHeaders(
        id=known["id"] or "",
        type=known["type"] or "",
        source=known["source"] or "",
        time=_time(attributes.pop("time")),
        subject=known["subject"],
        dataschema=known["dataschema"],
        correlation_id=known["correlation_id"],
        causation_id=known["causation_id"],
        traceparent=plain.get("traceparent"),
        tracestate=plain.get("tracestate"),
        content_type=plain.get("content-type", CONTENT_TYPE),
        extensions=attributes,
    )


def _decode(headers: Iterable[tuple[str, bytes | None]]) -> tuple[dict[str, str], dict[str, str]]:
    attributes: dict[str, str] = {}
    plain: dict[str, str] = {}
    for name, raw in headers:
        is_attribute = name.startswith("ce_")
        if raw is None or not (is_attribute or name in _PLAIN_HEADERS):
            continue
        if len(raw) > MAX_ATTRIBUTE_BYTES:
            raise InvalidEvent(f"header {name} has {len(raw)} bytes, more than {MAX_ATTRIBUTE_BYTES}")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidEvent(f"header {name} is not UTF-8") from error
        if is_attribute:
            attributes[name.removeprefix("ce_")] = text
        else:
            plain[name] = text
    return attributes, plain


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidEvent(f"ce_time {text!r} is no RFC 3339 time") from error
    if time.tzinfo is None:
        raise InvalidEvent(f"ce_time {text!r} has no zone")
    return time
