"""Which names came lately, for whoever remembers how many had come before; of very many only that they were many."""

from collections import deque


class Lately:
    """The last names that were noted, at most `kept`, and how many there were in all."""

    def __init__(self, kept: int) -> None:
        self.count = 0
        self._last: deque[str] = deque(maxlen=kept)

    def add(self, name: str) -> None:
        """Note a name."""
        self._last.append(name)
        self.count += 1

    def since(self, count: int) -> list[str] | None:
        """The names that were noted after so many, each once, sorted; None where they are too many to be known."""
        new = self.count - count
        if new > len(self._last):
            return None
        return sorted({self._last[place] for place in range(len(self._last) - new, len(self._last))})
