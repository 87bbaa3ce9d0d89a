"""When time alone changes something: one moment for each thing that waits for one."""

import heapq
from collections.abc import Iterator

Name = tuple[str, str]
"""(what it is: "job", "overdue", "node", "hold" or "recheck"; its id)."""


class Timers:
    """Moments by name; setting one again moves it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Name]] = []
        self._at: dict[Name, float] = {}

    def set(self, what: str, name: str, at: float | None) -> None:
        """Wake for something at a moment; None takes the timer back."""
        key = (what, name)
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def set_sooner(self, what: str, name: str, at: float | None) -> None:
        """Wake for something at a moment, unless that is due before it; None changes nothing."""
        if at is not None and at < self._at.get((what, name), float("inf")):
            self.set(what, name, at)

    def is_set(self, what: str, name: str) -> bool:
        """Whether there is a moment for it."""
        return (what, name) in self._at

    def due(self, now: float) -> Iterator[Name]:
        """What is due by now, each once, soonest first; it is not set any more."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                yield key

    def next(self) -> float | None:
        """The next moment; None if there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
