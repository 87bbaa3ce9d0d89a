"""What an error of the client becomes on the command line: sentences on stderr and an exit code."""

from makeway.errors import (
    BadAnswer,
    Declined,
    MakewayError,
    NoCluster,
    NoContact,
    NoScheduler,
    Refused,
    ReplayRefused,
    SpecInvalid,
    StillRunning,
)
from makeway.exit_codes import ExitCode
from makeway.output import say

_CODES: dict[type[MakewayError], ExitCode] = {
    Refused: ExitCode.REFUSED,
    Declined: ExitCode.REFUSED,
    SpecInvalid: ExitCode.REFUSED,
    ReplayRefused: ExitCode.REFUSED,
    NoContact: ExitCode.NO_CONTACT,
    BadAnswer: ExitCode.NO_CONTACT,
    NoCluster: ExitCode.NO_CONTACT,
    NoScheduler: ExitCode.NO_CONTACT,
    StillRunning: ExitCode.STILL_RUNNING,
}


def exit_code(error: Exception) -> ExitCode | None:
    """Says the error and gives its code; None for an error that is a bug and deserves its traceback."""
    if not isinstance(error, MakewayError):
        return None
    say(f"makeway: {error}" if "\n" not in str(error) else f"makeway:\n{error}")
    if isinstance(error, Refused) and error.problem.status == 401:
        say("The token was not accepted: `makeway up` writes a new context, or set MAKEWAY_TOKEN.")
    return _CODES.get(type(error), ExitCode.FAILED)
