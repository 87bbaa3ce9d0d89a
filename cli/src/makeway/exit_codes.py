"""What the command's exit codes say; docs/cli.md is their table.

``run``, ``wait``, ``submit --wait`` and ``logs --follow`` end with the job's own code, so makeway's own codes sit in
120 to 125, which programs rarely use and which lie below the shell's 126, 127 and 128 + signal.
"""

from enum import IntEnum
from typing import Final

from makeway_schemas.api import JobDetail
from makeway_schemas.states import JobState


class ExitCode(IntEnum):
    """makeway's own exit codes."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 120
    CANCELLED = 121
    TIMED_OUT = 122
    EXPIRED = 123
    NO_CONTACT = 124
    STILL_RUNNING = 125
    DETACHED = 130


EPILOG: Final = (
    "Exit codes: 0 done or accepted; 2 wrong usage; 120 refused; 121 job cancelled; 122 job over its time limit; "
    "123 job expired; 124 no contact; 125 --timeout passed, the job goes on; 130 interrupted or detached. run, wait, "
    "submit --wait and logs --follow pass on the job's own code, 128+n when signal n ended it; a failed job is never 0."
)

_BY_STATE: Final = {
    JobState.SUCCEEDED: ExitCode.OK,
    JobState.CANCELLED: ExitCode.CANCELLED,
    JobState.TIMED_OUT: ExitCode.TIMED_OUT,
    JobState.EXPIRED: ExitCode.EXPIRED,
}


def of_job(job: JobDetail) -> int:
    """The exit code that tells how a job ended. The state decides: a failure without a usable code is 1, never 0."""
    if job.state in _BY_STATE:
        return _BY_STATE[job.state]
    if job.state is not JobState.FAILED:
        return ExitCode.STILL_RUNNING
    signal = job.runs[-1].signal if job.runs else None
    if signal:
        return 128 + signal
    code = job.exit_code or 0
    return code if 1 <= code <= 255 else ExitCode.FAILED
