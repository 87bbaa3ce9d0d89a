"""When time alone changes something: one moment for each thing that waits for one."""

import heapq
from collections import defaultdict
from collections.abc import Iterator

Name = tuple[str, str]
"""(what it is: "job", "overdue", "avoid", "node", "hold" or "recheck"; its id)."""


class Timers:
    """Moments by name; setting one again moves it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, str]] = []
        self._at: dict[str, dict[str, float]] = defaultdict(dict)

    def set(self, what: str, name: str, at: float | None) -> None:
        """Wake for something at a moment; None takes the timer back."""
        moments = self._at[what]
        if at is None:
            moments.pop(name, None)
        elif moments.get(name) != at:
            moments[name] = at
            heapq.heappush(self._heap, (at, what, name))

    def set_sooner(self, what: str, name: str, at: float | None) -> None:
        """Wake for something at a moment, unless that is due before it; None changes nothing."""
        if at is not None and at < self._at[what].get(name, float("inf")):
            self.set(what, name, at)

    def is_set(self, what: str, name: str) -> bool:
        """Whether there is a moment for it."""
        return name in self._at[what]

    def due(self, now: float) -> Iterator[Name]:
        """What is due by now, each once, soonest first; it is not set any more."""
        while self._heap and self._heap[0][0] <= now:
            at, what, name = heapq.heappop(self._heap)
            if self._at[what].get(name) == at:
                del self._at[what][name]
                yield what, name

    def next(self) -> float | None:
        """The next moment; None if there is none."""
        while self._heap:
            at, what, name = self._heap[0]
            if self._at[what].get(name) == at:
                return at
            heapq.heappop(self._heap)
        return None
