"""Keeping poison: the dead-letter topic gets the message as it came, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.kafka.messages import Outgoing, Poison
from makeway_runtime.kafka.publisher import Publisher

EVENT_TYPE: Final = "makeway.dead_letter.v1"
ORIGINAL_PREFIX: Final = "original-"
MAX_REASON_CHARACTERS: Final = 900


class DeadLetters:
    """A `PoisonHandler` that publishes to the dead-letter topic."""

    def __init__(self, publisher: Publisher, *, topic: str, source: str) -> None:
        """`source` is the CloudEvents source of this process."""
        self._publisher = publisher
        self._topic = topic
        self._source = source

    async def __call__(self, poison: Poison) -> None:
        """Keeps one message. Raises PublishUncertain; keeping it twice is harmless: its id tells where it came from."""
        place = f"{poison.topic}/{poison.partition}/{poison.offset}"
        headers = to_headers(
            EventHeaders(
                id=f"dead-letter/{place}",
                type=EVENT_TYPE,
                source=self._source,
                time=datetime.now(UTC),
                subject=place,
                content_type="application/octet-stream",
                extensions={"reason": poison.reason[:MAX_REASON_CHARACTERS]},
            )
        )
        # The original headers may be anything, binary too: they are carried, never read.
        original = tuple((f"{ORIGINAL_PREFIX}{name}", value) for name, value in poison.headers)
        await self._publisher.publish(
            [Outgoing(topic=self._topic, key=poison.key, value=poison.value or b"", headers=headers + original)]
        )
