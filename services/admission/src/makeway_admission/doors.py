"""What every handler works with, and how a handler learns who asks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header, Request, WebSocket
from makeway_policy.rules import Policy
from makeway_runtime.health import Check
from makeway_runtime.postgres.outbox import Outbox
from makeway_schemas.ids import is_job_id

from makeway_admission.access import Access, Principal, Role, require
from makeway_admission.errors import not_found
from makeway_admission.feed import Feed
from makeway_admission.intake import Intake
from makeway_admission.log_store import LogStore
from makeway_admission.parameters import require_known_parameters
from makeway_admission.policy_in_force import PolicyInForce
from makeway_admission.reads import Record
from makeway_admission.settings import AdmissionSettings
from makeway_admission.store import Store
from makeway_admission.streams import StreamSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The service's parts, wired in `app`."""

    settings: AdmissionSettings
    store: Store
    access: Access
    intake: Intake
    outbox: Outbox
    feed: Feed
    logs: LogStore
    streams: StreamSlots
    policies: PolicyInForce
    checks: Callable[[], Sequence[Check]]
    channels: dict[str, WebSocket] = field(default_factory=dict)
    """The open channel of each node."""

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.policies.current.policy


def doors_of(request: Request) -> Doors:
    """The parts of the service that this request came to."""
    doors: Doors = request.app.state.doors
    return doors


def _with_role(role: Role) -> Callable[[Request, str | None], Coroutine[Any, Any, Principal]]:
    async def principal(request: Request, authorization: Annotated[str | None, Header()] = None) -> Principal:
        found = await doors_of(request).access.principal(authorization)
        require(found, role)
        require_known_parameters(request)
        return found

    return principal


ServiceDoors = Annotated[Doors, Depends(doors_of)]
Viewer = Annotated[Principal, Depends(_with_role(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(_with_role(Role.SUBMITTER))]
Admin = Annotated[Principal, Depends(_with_role(Role.ADMIN))]


async def visible_job(doors: Doors, principal: Principal, job_id: str) -> Record:
    """Team, class, state and end of a job. Raises Refused (404) where there is none, or it is another team's."""
    head = await doors.store.job_head(job_id) if is_job_id(job_id) else None
    if head is None or not principal.sees(head["team_id"]):
        raise not_found(f"job {job_id[:100]}")
    return head
