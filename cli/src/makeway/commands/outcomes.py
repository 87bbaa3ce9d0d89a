"""What became of a request that the scheduler decides about, in the command's own terms."""

import time
from typing import Final

from makeway_schemas.api import CommandAccepted, PreemptionView

from makeway.client import Client
from makeway.errors import Declined
from makeway.output import in_local_time

_REFUSED: Final = "refused: "
NOT_TAKEN: Final = "it is kept; the scheduler has not taken it yet"


_TOLD_SECONDS: Final = 2.0
"""A run is told to stop within milliseconds, unless its node is away."""
_LOOK_SECONDS: Final = 0.1


def outcome_of(client: Client, command_id: int | None) -> str:
    """The outcome in words; empty for a request that needed none. Raises Declined where nothing was done."""
    if command_id is None:
        return ""
    outcome = client.outcome_of(command_id)
    if outcome is None:
        return NOT_TAKEN
    if outcome.startswith(_REFUSED):
        raise Declined(in_local_time(outcome.removeprefix(_REFUSED)))
    return outcome


def outcome_of_preemption(client: Client, answer: CommandAccepted) -> str:
    """The same of a preemption by hand, once the run was told. Raises Declined also for a run that had ended by itself.

    The scheduler may hear of an end after it has taken the request; the record then tells that nothing was stopped.
    """
    if answer.command_id is None:
        raise Declined(answer.message)
    outcome = outcome_of(client, answer.command_id)
    if outcome == NOT_TAKEN:
        return outcome
    record = _told(client, answer.job_id)
    if record is not None and record.void:
        raise Declined(
            f"run {record.victim_run} had ended by itself before it was told to stop; nothing else was stopped"
        )
    if record is None:
        return (
            f"{outcome}; its node has not told the run yet, `makeway preemptions {answer.job_id}` says what came of it"
        )
    return outcome


def _told(client: Client, job_id: str) -> PreemptionView | None:
    """The newest record of a preemption of the job, once its run was told to stop or has ended."""
    deadline = time.monotonic() + _TOLD_SECONDS
    while True:
        newest = next((each for each in client.preemptions(job=job_id) if each.victim_job == job_id), None)
        if newest is not None and (newest.noticed_at is not None or newest.exited_at is not None or newest.void):
            return newest
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_SECONDS)
