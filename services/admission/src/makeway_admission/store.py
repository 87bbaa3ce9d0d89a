"""What admission changes beside admitting jobs: commands, tokens, teams, policies; with all that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from makeway_runtime.postgres.pool import lock_key

from makeway_admission.access import NewToken, Principal, Role
from makeway_admission.reads import ACQUIRE_SECONDS, QUERIES, Reads, Record

_TEAMS_LOCK: Final = lock_key("teams")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """A command as it was kept: `outcome` is issued, ended, unknown_job or unknown_node."""

    outcome: str
    state: str | None
    command_id: int | None
    outbox_id: int | None
    fact: str


class Store(Reads):
    """Reads, and the small writes, each on a connection of the pool."""

    async def issue_command(
        self, job_id: str, command: str, arguments: Mapping[str, Any], *, issued_by: str, traceparent: str | None
    ) -> CommandRow:
        """Keeps a command to a job and its fact in one transaction; the fact carries the arguments by their names."""
        return _command_row(
            await self._one(
                "issue_command",
                job_id=job_id,
                command=command,
                arguments=dict(arguments),
                issued_by=issued_by,
                traceparent=traceparent,
            )
        )

    async def issue_node_command(
        self, node_id: str, command: str, arguments: Mapping[str, Any], *, issued_by: str, traceparent: str | None
    ) -> CommandRow:
        """The same for a command to a node."""
        return _command_row(
            await self._one(
                "issue_node_command",
                node_id=node_id,
                command=command,
                arguments=dict(arguments),
                issued_by=issued_by,
                traceparent=traceparent,
            )
        )

    async def keep_given_token(self, token: NewToken, *, role: Role, node: str | None, label: str) -> None:
        """Keeps a token that a setting gives."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            await QUERIES.upsert_given_token(
                connection,
                token_id=token.token_id,
                secret_hash=token.secret_hash,
                role=role.value,
                node=node,
                label=label,
            )

    async def insert_token(self, token: NewToken, **columns: Any) -> Record:
        """Keeps a new token; `columns` are those of the statement."""
        row = await self._one("insert_token", token_id=token.token_id, secret_hash=token.secret_hash, **columns)
        if row is None:
            raise LookupError("an insert returned nothing")
        return row

    async def revoke_token(self, token_id: str, by: Principal) -> Record | None:
        """The revoked token; None where there is none, or none within the team and classes of who asks."""
        classes = None if by.classes is None else sorted(by.classes)
        return await self._one("revoke_token", token_id=token_id, team=by.team, classes=classes)

    async def put_team(self, check: Callable[[Sequence[Record]], None], **columns: Any) -> list[Record]:
        """Sets a team up; `columns` are those of the statement. Returns all teams as they were before.

        `check` is given the same and may raise to leave everything as it is; no other team is set up meanwhile.
        """
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection, connection.transaction():
            await QUERIES.lock_teams(connection, lock_key=_TEAMS_LOCK)
            before = [row async for row in QUERIES.team_rights(connection)]
            check(before)
            await QUERIES.put_team(connection, **columns)
        return before

    async def ensure_team(self, team: str) -> bool:
        """Whether the team is known, or may come by being named."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            return bool(await QUERIES.ensure_team(connection, team=team))

    async def delete_old_keys(self, *, older_than_seconds: float, most: int) -> int:
        """Forgets the oldest idempotency keys, at most so many; returns how many those were."""
        async with self._connections.acquire(timeout=ACQUIRE_SECONDS) as connection:
            gone = QUERIES.delete_old_keys(connection, older_than_seconds=older_than_seconds, most=most)
            return int(await gone)

    async def insert_policy(self, document: Mapping[str, Any], applied_by: str) -> tuple[int, str]:
        """Keeps a policy, the newest from here on, and its fact in one transaction. Returns the outbox's row."""
        row = await self._one("insert_policy", pool=self._pool, body=dict(document), applied_by=applied_by)
        if row is None:
            raise LookupError("an insert returned nothing")
        return row["outbox_id"], row["fact"]


def _command_row(row: Record | None) -> CommandRow:
    if row is None:
        raise LookupError("a command was answered with nothing")
    return CommandRow(
        outcome=row["outcome"],
        state=row["state"],
        command_id=row["command_id"],
        outbox_id=row["outbox_id"],
        fact=row["fact"] or "",
    )
