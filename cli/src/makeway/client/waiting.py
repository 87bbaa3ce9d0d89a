"""Waiting for a job's end: woken by its events, decided by its state."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from makeway_schemas.api import EventView, JobDetail
from makeway_schemas.states import TERMINAL

from makeway.client.streams import job_events
from makeway.errors import NoScheduler, StillRunning

if TYPE_CHECKING:  # the client has this as its method ``wait``
    from makeway.client.client import Client

OWNERLESS_SECONDS: Final = 60.0
"""How long a pool may be without a scheduler before a waiter is told; a take-over takes well under a second."""


def wait_for_end(
    client: Client,
    job_id: str,
    *,
    timeout_seconds: float | None = None,
    on_event: Callable[[EventView], None] | None = None,
) -> JobDetail:
    """Returns the ended job. Raises StillRunning after the time-out, NoScheduler where nobody schedules any more.

    Events only wake it up: what it answers comes from the job itself, so a lost event costs seconds, not the answer.
    """
    began = time.monotonic()
    ownerless_since: float | None = None
    job = client.job(job_id)
    if job.state in TERMINAL:
        return job
    path, deadline = f"/v1/jobs/{job_id}/events", _after(began, timeout_seconds)
    for event in job_events(client.transport, path, deadline=deadline):
        if event is not None and on_event is not None:
            on_event(event)
        if event is None or event.state in TERMINAL:
            job = client.job(job_id)
            if job.state in TERMINAL:
                return job
        if event is None:
            ownerless_since = _watch_owner(client, job_id, ownerless_since)
        if timeout_seconds is not None and time.monotonic() - began >= timeout_seconds:
            break
    raise StillRunning(job_id, time.monotonic() - began)


def _after(began: float, timeout_seconds: float | None) -> float | None:
    return None if timeout_seconds is None else began + timeout_seconds


def _watch_owner(client: Client, job_id: str, since: float | None) -> float | None:
    if client.cluster().scheduler:
        return None
    now = time.monotonic()
    if since is not None and now - since >= OWNERLESS_SECONDS:
        raise NoScheduler(job_id, now - since)
    return since if since is not None else now
