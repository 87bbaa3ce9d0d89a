"""From outbox rows to messages of `scheduler.inbox`: all that waits goes as one batch of facts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.kafka.messages import Outgoing
from makeway_runtime.postgres.outbox import OutboxRow
from makeway_schemas.facts import BATCH_TYPE
from makeway_schemas.topics import SCHEDULER_INBOX

SOURCE: Final = "admission"
_MOST_FACTS: Final = 500
_MOST_BYTES: Final = 2 * 1024 * 1024


def fact_row(outbox_id: int, pool: str, fact: str) -> OutboxRow:
    """An outbox row of one fact; the trace travels inside the fact, since a message carries many."""
    return OutboxRow(
        id=outbox_id,
        topic=SCHEDULER_INBOX.name,
        key=pool.encode(),
        value=fact.encode(),
        headers={},
        partition=SCHEDULER_INBOX.partition_of(pool),
    )


def compose(rows: Sequence[OutboxRow]) -> list[Outgoing]:
    """As few messages as hold the facts, in their order: neighbours of one pool share one, within its bounds."""
    return [_message(part) for _, neighbours in groupby(rows, key=lambda row: row.key) for part in _bounded(neighbours)]


def _bounded(rows: Iterable[OutboxRow]) -> Iterable[list[OutboxRow]]:
    part: list[OutboxRow] = []
    size = 0
    for row in rows:
        if part and (len(part) >= _MOST_FACTS or size + len(row.value) > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row.value)
    if part:
        yield part


def _message(part: Sequence[OutboxRow]) -> Outgoing:
    facts = b",".join(row.value for row in part)
    value = b'{"version":1,"source":"%s","facts":[%s]}' % (SOURCE.encode(), facts)
    event = EventHeaders(
        # The same facts sent again are the same event.
        id=hashlib.blake2b(value, digest_size=16).hexdigest(),
        type=BATCH_TYPE,
        source=f"makeway/{SOURCE}",
        subject=(part[0].key or b"").decode(),
        time=datetime.now(UTC),
    )
    return Outgoing(
        topic=part[0].topic, key=part[0].key, value=value, headers=to_headers(event), partition=part[0].partition
    )
