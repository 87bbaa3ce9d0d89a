"""An undo journal over plain dicts: what a transaction changed, so that a rollback costs what was changed."""

from bisect import bisect_left
from typing import Any

_MISSING: Any = object()


class Journal:
    """Changes made through it between `begin` and `close` can be undone; outside they are kept at once."""

    def __init__(self) -> None:
        # Mapping, key and old value one after the other: a tuple for each would be work for the garbage collector.
        self._changes: list[Any] = []
        self._open = False

    def begin(self) -> None:
        """Open a transaction. One at a time."""
        if self._open:
            raise RuntimeError("a transaction is open already")
        self._open = True

    def undo(self) -> None:
        """Restore every mapping exactly as it was at `begin`."""
        changes = reversed(self._changes)
        for old, key, mapping in zip(changes, changes, changes, strict=True):
            if old is _MISSING:
                mapping.pop(key, None)
            else:
                mapping[key] = old

    def close(self) -> None:
        """End the transaction; what was not undone is kept."""
        if not self._open:
            raise RuntimeError("no transaction is open")
        self._open = False
        self._changes.clear()

    def put(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """Set a key of a mapping."""
        if self._open:
            self._changes += mapping, key, mapping.get(key, _MISSING)
        mapping[key] = value

    def delete(self, mapping: dict[Any, Any], key: Any) -> None:
        """Take a key out of a mapping; a missing one is ignored."""
        if self._open:
            self._changes += mapping, key, mapping.get(key, _MISSING)
        mapping.pop(key, None)

    def put_member(self, mapping: dict[str, tuple[str, ...]], key: str, member: str, *, present: bool) -> None:
        """Add a member to the sorted tuple of a key, or take it out; a key without members goes."""
        old = mapping.get(key, ())
        new: tuple[str, ...]
        if not old:
            # Of most there is one at most.
            new = (member,) if present else ()
        elif present:
            place = bisect_left(old, member)
            known = place < len(old) and old[place] == member
            new = old if known else (*old[:place], member, *old[place:])
        else:
            new = tuple([each for each in old if each != member])
        if new:
            self.put(mapping, key, new)
        else:
            self.delete(mapping, key)
