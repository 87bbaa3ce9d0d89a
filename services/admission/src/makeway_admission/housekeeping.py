"""What admission forgets by age, in small deletes: idempotency keys.

A key is kept for at least `KEYS_KEPT`. After that its repeat is a new job, and the same key may name another one.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final, Protocol

from makeway_runtime.postgres.transient import is_transient

KEYS_KEPT: Final = timedelta(hours=24)
"""As long as any client repeats a submit; a pipeline that is run again another day means another job."""

_LOOK_SECONDS: Final = 60.0
_MOST_ROWS: Final = 1_000


class KeyStore(Protocol):
    """Where the keys are."""

    async def delete_old_keys(self, *, older_than_seconds: float, most: int) -> int:
        """Deletes the oldest keys, at most so many; returns how many those were."""
        ...


class Housekeeping:
    """Forgets for as long as it runs; several admissions of one pool may do so at once."""

    def __init__(self, store: KeyStore) -> None:
        """Nothing is deleted before `run`."""
        self._store = store

    async def run(self) -> None:
        """Looks once a minute until cancelled."""
        while True:
            try:
                await self.forget()
            except Exception as error:
                if not is_transient(error):
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def forget(self) -> int:
        """Deletes all keys that are old enough, a page at a time; returns how many there were."""
        deleted = 0
        while True:
            page = await self._store.delete_old_keys(older_than_seconds=KEYS_KEPT.total_seconds(), most=_MOST_ROWS)
            deleted += page
            if page < _MOST_ROWS:
                return deleted
