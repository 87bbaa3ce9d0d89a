"""Streams: a bounded number, one form, signs of life."""

import pytest
from makeway_admission import streams
from makeway_admission.errors import ProblemCode, Refused, problem_of
from makeway_admission.streams import KeepAlive, StreamResponse, StreamSlots, server_sent
from starlette.types import Message


def test_an_event_is_written_as_the_standard_says() -> None:
    assert server_sent("log", {"a": 1}, event_id="7") == b'id: 7\nevent: log\ndata: {"a":1}\n\n'
    assert server_sent("end", {}) == b"event: end\ndata: {}\n\n"
    assert server_sent("x", {"a": "b\nc"}).count(b"\n") == 3


def test_slots_are_given_back() -> None:
    slots = StreamSlots(1)
    with slots.one():
        with pytest.raises(Refused) as refused, slots.one():
            pass
        assert refused.value.problem.status == 429
    with slots.one():
        assert slots.open == 1
    assert slots.open == 0


def test_a_sign_of_life_is_due_after_a_while_without_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(streams.time, "monotonic", lambda: now)
    keep_alive = KeepAlive()
    now = streams.KEEP_ALIVE_SECONDS - 1
    assert not keep_alive.is_due(sent=False)
    assert not keep_alive.is_due(sent=True)
    now += streams.KEEP_ALIVE_SECONDS - 1
    assert not keep_alive.is_due(sent=False)
    now += 1
    assert keep_alive.is_due(sent=False)
    assert not keep_alive.is_due(sent=False)


class Reader:
    """A client of one ASGI response, that may be slow or go."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.gone = streams.asyncio.Event()
        self.takes = streams.asyncio.Event()
        self.takes.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.takes.wait()
        if message["type"] == "http.response.body":
            self.taken.append(message["body"])


SCOPE = {"type": "http", "headers": [(b"authorization", b"Bearer x")]}


async def never_refused(_: str | None) -> Refused:
    await streams.asyncio.Event().wait()
    raise AssertionError


class Parts:
    """Endless parts, counting how many were made."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = False

    async def __call__(self):  # type: ignore[no-untyped-def]
        try:
            while True:
                self.made += 1
                yield b"x"
                await streams.asyncio.sleep(0)
        finally:
            self.closed = True


async def test_a_slow_reader_holds_one_part_and_is_let_go_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEND_TIMEOUT_SECONDS", 0.05)
    reader, parts, slots = Reader(), Parts(), StreamSlots(1)
    response = StreamResponse(parts(), slots, never_refused, media_type="text/plain")
    sending = streams.asyncio.create_task(response(SCOPE, reader.receive, reader.send))
    while parts.made < 10:
        await streams.asyncio.sleep(0)
    reader.takes.clear()
    await streams.asyncio.wait_for(sending, 5)
    assert parts.made - len(reader.taken) <= 1
    assert (parts.closed, slots.open) == (True, 0)


async def test_a_reader_that_goes_ends_its_stream() -> None:
    reader, parts, slots = Reader(), Parts(), StreamSlots(1)
    response = StreamResponse(parts(), slots, never_refused, media_type="text/plain")
    sending = streams.asyncio.create_task(response(SCOPE, reader.receive, reader.send))
    while parts.made < 10:
        await streams.asyncio.sleep(0)
    assert slots.open == 1
    reader.gone.set()
    await streams.asyncio.wait_for(sending, 5)
    assert (parts.closed, slots.open) == (True, 0)


async def test_a_reader_that_takes_nothing_does_not_keep_a_stream_beyond_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_LAST_WORD_SECONDS", 0.05)
    reader, parts, slots = Reader(), Parts(), StreamSlots(1)
    asked: list[str | None] = []
    revoked = streams.asyncio.Event()

    async def until_refused(authorization: str | None) -> Refused:
        asked.append(authorization)
        await revoked.wait()
        return Refused(problem_of(ProblemCode.UNAUTHENTICATED, "the token is over"))

    response = StreamResponse(parts(), slots, until_refused, media_type=streams.EVENT_STREAM)
    sending = streams.asyncio.create_task(response(SCOPE, reader.receive, reader.send))
    while parts.made < 10:
        await streams.asyncio.sleep(0)
    reader.takes.clear()
    revoked.set()
    await streams.asyncio.wait_for(sending, 5)
    assert (parts.closed, slots.open, asked) == (True, 0, ["Bearer x"])
