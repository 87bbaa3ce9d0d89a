"""Tokens: their form, their check, and how long a row is remembered."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from makeway_admission import access
from makeway_admission.access import Access, Principal, Role, TokenRow, given_token, hash_of, new_token, require
from makeway_admission.errors import Refused, SettingsRefused

SECRET = "s" * 43
ROW = TokenRow(
    principal=Principal(token_id="t1", name="ci", role=Role.SUBMITTER, team="team-a"),
    secret_hash=hash_of(SECRET),
    expires_at=None,
    revoked_at=None,
)


@dataclass
class Rows:
    """The rows of tokens, counting how often they are asked for."""

    rows: dict[str, TokenRow] = field(default_factory=dict)
    asked: int = 0

    async def find_token(self, token_id: str) -> TokenRow | None:
        self.asked += 1
        return self.rows.get(token_id)


async def test_a_good_token_is_its_principal_and_is_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    rows = Rows({"t1": ROW})
    checker = Access(rows)
    for _ in range(5):
        assert await checker.principal(f"Bearer mw_t1_{SECRET}") == ROW.principal
    assert rows.asked == 1
    rows.rows["t1"] = replace(ROW, revoked_at=datetime.now(UTC))
    now += access.REMEMBERED_SECONDS
    with pytest.raises(Refused):
        await checker.principal(f"Bearer mw_t1_{SECRET}")


async def test_a_revocation_here_counts_at_once() -> None:
    rows = Rows({"t1": ROW})
    checker = Access(rows)
    await checker.principal(f"Bearer mw_t1_{SECRET}")
    rows.rows["t1"] = replace(ROW, revoked_at=datetime.now(UTC))
    checker.forget("t1")
    with pytest.raises(Refused):
        await checker.principal(f"bearer mw_t1_{SECRET}")


async def test_many_who_wait_for_the_end_of_a_token_ask_about_once_a_second_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "REMEMBERED_SECONDS", 0.2)
    rows = Rows({"t1": ROW})
    checker = Access(rows)
    began = time.monotonic()
    waiting = [asyncio.create_task(checker.until_refused(f"Bearer mw_t1_{SECRET}")) for _ in range(50)]
    while rows.asked < 4:
        await asyncio.sleep(0.01)
    assert time.monotonic() - began >= 3 * 0.2
    assert not any(each.done() for each in waiting)
    rows.rows["t1"] = replace(ROW, revoked_at=datetime.now(UTC))
    refusals = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert {each.problem.status for each in refusals} == {401}


async def test_a_token_that_expires_is_over_at_its_time_whatever_is_remembered() -> None:
    ends_at = datetime.now(UTC) + timedelta(seconds=0.2)
    rows = Rows({"t1": replace(ROW, principal=replace(ROW.principal, expires_at=ends_at), expires_at=ends_at)})
    refusal = await asyncio.wait_for(Access(rows).until_refused(f"Bearer mw_t1_{SECRET}"), 0.8)
    assert refusal.problem.status == 401
    assert (datetime.now(UTC) >= ends_at, rows.asked) == (True, 1)


async def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_MOST_REMEMBERED", 10)
    checker = Access(Rows())
    for number in range(100):
        with pytest.raises(Refused):
            await checker.principal(f"Bearer mw_{number}_{SECRET}")
    assert len(checker._rows) == 10


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", f"mw_t1_{SECRET}", f"Basic mw_t1_{SECRET}", "Bearer mw_t1_short", "Bearer x"]
)
async def test_what_is_no_token_is_refused_without_asking_the_database(header: str | None) -> None:
    rows = Rows({"t1": ROW})
    with pytest.raises(Refused) as refused:
        await Access(rows).principal(header)
    assert (refused.value.problem.status, rows.asked) == (401, 0)
    assert "WWW-Authenticate" in refused.value.headers


def test_a_token_is_good_until_it_is_revoked_or_expired() -> None:
    now = datetime.now(UTC)
    assert ROW.is_good(SECRET, now)
    assert not ROW.is_good(SECRET + "x", now)
    assert not replace(ROW, revoked_at=now).is_good(SECRET, now)
    assert replace(ROW, expires_at=now + timedelta(seconds=1)).is_good(SECRET, now)
    assert not replace(ROW, expires_at=now).is_good(SECRET, now)


def test_a_new_token_has_the_form_that_is_checked_and_256_random_bits() -> None:
    tokens = {new_token().text for _ in range(100)}
    assert len(tokens) == 100
    for text in tokens:
        match = access.TOKEN_PATTERN.fullmatch(text)
        assert match is not None
        assert len(match[2]) == 43


def test_a_setting_that_is_no_token_is_refused_without_repeating_it() -> None:
    with pytest.raises(SettingsRefused) as refused:
        given_token("hunter2", name="MAKEWAY_BOOTSTRAP_TOKEN")
    assert "MAKEWAY_BOOTSTRAP_TOKEN" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_each_role_includes_the_ones_before_it() -> None:
    order = [Role.NODE, Role.VIEWER, Role.SUBMITTER, Role.ADMIN]
    for rank, role in enumerate(order):
        principal = replace(ROW.principal, role=role)
        for other_rank, other in enumerate(order):
            if other_rank <= rank:
                require(principal, other)
            else:
                with pytest.raises(Refused):
                    require(principal, other)


def test_a_token_of_a_team_sees_that_team_alone() -> None:
    assert [ROW.principal.sees(team) for team in ("team-a", "team-b")] == [True, False]
    assert replace(ROW.principal, team=None).sees("team-b")
