"""What became of a request that the scheduler decides about, in the command's own terms."""

from typing import Final

from makeway.client import Client
from makeway.errors import Declined

_REFUSED: Final = "refused: "
NOT_TAKEN: Final = "it is kept; the scheduler has not taken it yet"


def outcome_of(client: Client, command_id: int | None) -> str:
    """The outcome in words; empty for a request that needed none. Raises Declined where nothing was done."""
    if command_id is None:
        return ""
    outcome = client.outcome_of(command_id)
    if outcome is None:
        return NOT_TAKEN
    if outcome.startswith(_REFUSED):
        raise Declined(outcome.removeprefix(_REFUSED))
    return outcome
