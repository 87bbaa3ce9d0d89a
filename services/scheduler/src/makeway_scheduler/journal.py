"""A table in memory whose changes can be kept or taken back as one.

It is the overlay of the protocol: between two commits of the database every change notes what was there before, so
that nothing is copied and a rollback costs only what was changed. Nothing else reads in between.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

Row = TypeVar("Row")


class Table(Generic[Row]):
    """Rows by id. Rows are frozen values, replaced and never changed."""

    def __init__(self) -> None:
        """Empty."""
        self._rows: dict[str, Row] = {}
        self._before: dict[str, Row | None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def get(self, key: str) -> Row | None:
        """The row, or None."""
        return self._rows.get(key)

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def put(self, key: str, row: Row) -> None:
        """Add a row or replace it."""
        if key not in self._before:
            self._before[key] = self._rows.get(key)
        self._rows[key] = row

    def remove(self, key: str) -> None:
        """Forget a row; an unknown one is ignored."""
        if key in self._rows:
            if key not in self._before:
                self._before[key] = self._rows[key]
            del self._rows[key]

    def touched(self) -> Mapping[str, Row | None]:
        """Every id changed since the last commit or rollback, with what was there before."""
        return self._before

    def commit(self) -> None:
        """Keep the changes."""
        self._before = {}

    def rollback(self) -> None:
        """Take the changes back."""
        for key, row in self._before.items():
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        self._before = {}
