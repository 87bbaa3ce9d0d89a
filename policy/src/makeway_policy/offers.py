"""Which nodes had something to offer lately that they had not before: all that whoever was refused has to search."""

from collections import deque

_KEPT = 256
"""Of more than so many nodes all are searched, which costs no more."""


class Offers:
    """The nodes of the last offers, and how many there were in all."""

    def __init__(self) -> None:
        self.count = 0
        self._last: deque[str] = deque(maxlen=_KEPT)

    def add(self, node_id: str) -> None:
        """A node has something to offer that it had not."""
        self._last.append(node_id)
        self.count += 1

    def since(self, count: int) -> list[str] | None:
        """The nodes of all offers after so many, each once, by id; None where they are too many to be known."""
        new = self.count - count
        if new > len(self._last):
            return None
        return sorted({self._last[place] for place in range(len(self._last) - new, len(self._last))})
