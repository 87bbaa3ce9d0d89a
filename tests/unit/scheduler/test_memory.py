"""What lives long is left out of garbage collections, and its garbage is found all the same."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from makeway_scheduler import memory
from makeway_scheduler.memory import Memory, made_to_last


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_left_is_set_apart() -> None:
    kept = [Circle() for _ in range(100)]
    before = gc.get_freeze_count()
    Memory().set_apart(idle=False)
    assert gc.get_freeze_count() >= before + len(kept)


def test_young_garbage_goes_at_once() -> None:
    gone = weakref.ref(Circle())
    Memory().set_apart(idle=False)
    assert gone() is None


def test_what_is_made_to_last_is_set_apart_unseen() -> None:
    seen: list[str] = []
    gc.collect()
    with made_to_last():
        gc.callbacks.append(lambda phase, _: seen.append(phase))
        try:
            kept = [Circle() for _ in range(100_000)]
        finally:
            gc.callbacks.pop()
    assert not seen
    assert gc.get_freeze_count() >= len(kept)
    assert gc.isenabled()


def test_collection_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with made_to_last(), made_to_last():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with made_to_last():
        with made_to_last():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_young_garbage_goes_before_what_lasts_is_made() -> None:
    gone = weakref.ref(Circle())
    with made_to_last():
        assert gone() is None


def test_garbage_of_what_was_set_apart_goes_when_nobody_waits_and_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Memory()
    circle = Circle()
    gone = weakref.ref(circle)
    ours.set_apart(idle=True)
    del circle
    ours.set_apart(idle=True)
    assert gone() is not None
    monkeypatch.setattr(memory, "_ALL_SECONDS", 0.0)
    ours.set_apart(idle=False)
    assert gone() is not None
    ours.set_apart(idle=True)
    assert gone() is None


def test_garbage_goes_in_the_end_also_where_somebody_always_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Memory()
    circle = Circle()
    gone = weakref.ref(circle)
    ours.set_apart(idle=False)
    del circle
    ours.set_apart(idle=False)
    assert gone() is not None
    monkeypatch.setattr(memory, "_AT_THE_LATEST_SECONDS", 0.0)
    ours.set_apart(idle=False)
    assert gone() is None
