"""Facts on their way from Kafka to the cycle: parsed one message at a time, kept until a batch takes them."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from makeway_policy.quantities import quantity
from makeway_runtime.kafka.messages import Incoming, PoisonFound
from makeway_schemas.facts import BATCH_TYPE, Fact, FactBatch
from pydantic import ValidationError

MOST_WAITING: Final = 20_000
MOST_IN_A_BATCH: Final = 400


class Inbox:
    """What waits to be applied. Nobody loses by a crash: nodes and admission repeat what is not settled."""

    def __init__(self, pool: str) -> None:
        """``pool``: messages of other pools in the same partition are not ours."""
        self._pool_key = pool.encode()
        self._waiting: deque[Fact] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self.wake = asyncio.Event()
        self.put_so_far = 0
        self.taken_so_far = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def handle(self, batch: Sequence[Incoming]) -> None:
        """The handler of the topic. Waits while too much is waiting. Raises PoisonFound for what cannot be read."""
        reasons: dict[tuple[int, int], str] = {}
        facts: list[Fact] = []
        for message in batch:
            if message.key != self._pool_key:
                continue
            try:
                facts += parse(message)
            except ValidationError as error:
                reasons[(message.partition, message.offset)] = _sentence(error)
        if reasons:
            raise PoisonFound(reasons)
        await self._room.wait()
        self.put(facts)

    def put(self, facts: Sequence[Fact]) -> None:
        """Add facts at the end."""
        if facts:
            self._waiting.extend(facts)
            self.put_so_far += len(facts)
            if len(self._waiting) >= MOST_WAITING:
                self._room.clear()
            self.wake.set()

    def take(self) -> list[Fact]:
        """The oldest facts, as many as fit a batch."""
        taken = [self._waiting.popleft() for _ in range(min(MOST_IN_A_BATCH, len(self._waiting)))]
        self.taken_so_far += len(taken)
        if len(self._waiting) < MOST_WAITING:
            self._room.set()
        if not self._waiting:
            self.wake.clear()
        return taken

    def put_back(self, facts: Sequence[Fact]) -> None:
        """Facts of a batch that did not happen come first again."""
        self._waiting.extendleft(reversed(facts))
        self.taken_so_far -= len(facts)
        if facts:
            self.wake.set()

    def clear(self) -> None:
        """Forget everything: the pool has another owner."""
        self._waiting.clear()
        self.taken_so_far = self.put_so_far
        self._room.set()
        self.wake.clear()


def parse(message: Incoming) -> Sequence[Fact]:
    """The facts of a message. Raises pydantic's ValidationError."""
    if message.event.type != BATCH_TYPE:
        return ()
    return FactBatch.model_validate_json(message.value).facts


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{quantity(error.error_count(), 'problem')}; the first: {place}: {first['msg']}"
