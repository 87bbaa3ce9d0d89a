"""The policy in force: the newest that can be read; a database that is away changes nothing."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from makeway_admission import policy_in_force
from makeway_admission.policy_in_force import PolicyInForce, first_policy
from makeway_policy.presets import DEFAULT, PLAIN
from makeway_runtime.errors import InvalidSetting


class Rows:
    """The table `policies`; `away` is what reading it raises."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = list(bodies)
        self.away: Exception | None = None
        self.asked = 0

    async def newest_policies(self, known: int) -> list[Mapping[str, Any]]:
        self.asked += 1
        if self.away is not None:
            raise self.away
        rows = [
            {"policy_id": number, "body": body, "applied_by": "ann", "applied_at": datetime.now(UTC)}
            for number, body in enumerate(self.bodies, start=1)
            if number > known
        ]
        return rows[::-1]


async def test_the_newest_that_can_be_read_is_in_force() -> None:
    rows = Rows({"preset": "fifo"}, {"preset": "plain"}, {"delta": 90}, {"no_such_field": 1})
    policies = PolicyInForce(rows, first_policy(None))
    assert policies.current.policy == DEFAULT
    await policies.look()
    assert (policies.current.policy, policies.current.policy_id, policies.current.applied_by) == (PLAIN, 2, "ann")
    await policies.look()
    assert policies.current.policy_id == 2


async def test_a_database_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_in_force, "_LOOK_SECONDS", 0.001)
    rows = Rows({"preset": "plain"})
    rows.away = ConnectionResetError()
    policies = PolicyInForce(rows, first_policy(None))
    looking = asyncio.create_task(policies.run())
    async with asyncio.timeout(5):
        while rows.asked < 2:
            await asyncio.sleep(0)
        assert policies.current.policy == DEFAULT
        rows.away = None
        while policies.current.policy != PLAIN:
            await asyncio.sleep(0)
    looking.cancel()


def test_a_file_that_contradicts_itself_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"delta": 90}')
    with pytest.raises(InvalidSetting, match="less than 180 above class low"):
        first_policy(file)
