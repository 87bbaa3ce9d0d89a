"""Messages on their way in and out. Values are bytes: what they mean is the caller's business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from makeway_runtime.cloudevents import EventHeaders, Headers
from makeway_runtime.errors import MakewayRuntimeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message to publish. Messages of one key keep their order; `partition` overrides the key's hash."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


class Record(Protocol):
    """A record as aiokafka hands it over; the parts that are read here. `timestamp` is in milliseconds."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """One message whose headers are a CloudEvent. `received` is the broker's time, aware and UTC."""

    topic: str
    partition: int
    offset: int
    received: datetime
    key: bytes | None
    value: bytes
    event: EventHeaders
    headers: Headers = ()
    """As they came, foreign ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """A message that cannot be used, as it came, and why."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str


class PoisonFound(MakewayRuntimeError):
    """Raised by a handler that has kept nothing of its batch: these messages are poison, give me the others again."""

    def __init__(self, reasons: dict[tuple[int, int], str]) -> None:
        """`reasons`: (partition, offset) to a sentence. At least one."""
        super().__init__(f"{len(reasons)} messages of the batch are poison")
        self.reasons = reasons
