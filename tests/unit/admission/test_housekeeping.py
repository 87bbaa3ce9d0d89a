"""Old keys are forgotten a page at a time, and a database that is away for a while ends nothing."""

import asyncio
from contextlib import suppress

import pytest
from makeway_admission import housekeeping
from makeway_admission.housekeeping import Housekeeping
from makeway_runtime.errors import TransientError


class Keys:
    """So many keys are old."""

    def __init__(self, old: int) -> None:
        self.old = old
        self.asked: list[float] = []
        self.away = False

    async def delete_old_keys(self, *, older_than_seconds: float, most: int) -> int:
        self.asked.append(older_than_seconds)
        if self.away:
            raise TransientError("the database is away")
        page = min(self.old, most)
        self.old -= page
        return page


@pytest.mark.parametrize(("old", "pages"), [(0, 1), (999, 1), (1_000, 2), (2_500, 3)])
async def test_all_old_keys_are_forgotten_a_page_at_a_time(old: int, pages: int) -> None:
    keys = Keys(old)
    assert await Housekeeping(keys).forget() == old
    assert (keys.old, keys.asked) == (0, [86_400.0] * pages)


async def test_a_database_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_LOOK_SECONDS", 0.001)
    keys = Keys(5)
    keys.away = True
    work = asyncio.create_task(Housekeeping(keys).run())
    async with asyncio.timeout(5):
        while len(keys.asked) < 3:
            await asyncio.sleep(0)
        keys.away = False
        while keys.old:
            await asyncio.sleep(0)
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
