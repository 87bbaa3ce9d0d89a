"""The policy that submits are judged by: the newest that was applied to the pool, else the one of the settings.

A change made here holds here at once, and in other admissions and the scheduler within seconds: each looks for itself.
A submit that another admission judged by the former policy meanwhile is a job like any other; a class that the policy
no longer has counts as the default class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from makeway_policy.checks import problems
from makeway_policy.document import from_document
from makeway_policy.rules import Policy
from makeway_runtime.errors import InvalidSetting
from makeway_runtime.policy_setting import policy_document
from makeway_runtime.postgres.transient import is_transient
from makeway_schemas.policy_file import PolicyFile
from pydantic import ValidationError

_LOG: Final = structlog.get_logger(__name__)
_LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPolicy:
    """A policy with what it was made from. `policy_id` None: it was never applied."""

    policy: Policy
    document: Mapping[str, Any]
    policy_id: int | None = None
    applied_by: str = ""
    applied_at: datetime | None = None


class PolicySource(Protocol):
    """Where applied policies are."""

    async def newest_policies(self, known: int) -> list[Mapping[str, Any]]:
        """Rows of the table `policies` that are newer than `known`, newest first."""
        ...


class PolicyInForce:
    """Holds the policy, and looks for a newer one."""

    def __init__(self, source: PolicySource, first: KeptPolicy) -> None:
        """`first` holds while none was applied."""
        self._source = source
        self._looked_at = 0
        self.current = first

    async def run(self) -> None:
        """Looks for a newer policy until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:
                if not is_transient(error):
                    raise

    async def look(self) -> None:
        """Takes the newest policy that this version can read."""
        rows = await self._source.newest_policies(self._looked_at)
        for row in rows:
            kept = _readable(row)
            if kept is not None:
                self.current = kept
                break
        if rows:
            self._looked_at = rows[0]["policy_id"]


def first_policy(path: Path | None) -> KeptPolicy:
    """The policy of the settings. Raises InvalidSetting."""
    document = policy_document(path)
    policy = from_document(document)
    wrong = problems(policy)
    if wrong:
        raise InvalidSetting(f"MAKEWAY_POLICY_FILE: {path}: {'; '.join(wrong)}")
    return KeptPolicy(policy=policy, document=document)


def _readable(row: Mapping[str, Any]) -> KeptPolicy | None:
    try:
        document = PolicyFile.model_validate(row["body"]).document()
    except ValidationError as error:
        _LOG.error("a policy cannot be read and is passed over", policy=row["policy_id"], error=str(error))
        return None
    policy = from_document(document)
    wrong = problems(policy)
    if wrong:
        _LOG.error("a policy contradicts itself and is passed over", policy=row["policy_id"], problems=wrong)
        return None
    return KeptPolicy(
        policy=policy,
        document=document,
        policy_id=row["policy_id"],
        applied_by=row["applied_by"],
        applied_at=row["applied_at"],
    )
