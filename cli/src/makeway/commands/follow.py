"""``wait`` and ``logs``, and following a job to its end as ``run`` and ``submit --wait`` do too."""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from makeway_policy.quantities import quantity
from makeway_schemas.api import EventView, JobDetail
from makeway_schemas.durations import format_duration
from makeway_schemas.states import TERMINAL, JobState

from makeway.client import Client
from makeway.commands.options import PATIENCE_HELP, Job, Jobs, Output, State, connect, duration
from makeway.errors import StillRunning
from makeway.exit_codes import EPILOG, ExitCode, of_job
from makeway.output import OutputFormat, print_json, safe, say, write_out

app = typer.Typer(rich_markup_mode=None)

Duration = Annotated[float | None, typer.Option(parser=duration, metavar="DURATION", help="Stop waiting after it.")]
Patience = Annotated[float, typer.Option(parser=duration, metavar="DURATION", help=PATIENCE_HELP)]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, as a code and a sentence, with its name too where it is `named`."""

    job: JobDetail
    named: bool = False

    @property
    def code(self) -> int:
        """The exit code of whoever waited for the job."""
        return of_job(self.job)

    def __str__(self) -> str:
        job = self.job
        ran = f" after {format_duration(job.used_seconds)}" if job.used_seconds else ""
        times = f", preempted {quantity(job.preemptions, 'time')}" if job.preemptions else ""
        detail = job.message or job.reason
        code = f" with exit code {self.code}" if job.state is JobState.FAILED else ""
        name = f" ({safe(job.name)})" if self.named and job.name != job.job_id else ""
        return f"job {job.job_id}{name} {job.state}{code}{ran}{times}" + (f": {safe(detail)}" if detail else "")


def say_event(event: EventView, name: str = "") -> None:
    """One line of progress for each move of the job, with the name where there are several to be told apart."""
    run = f" (run {event.run})" if event.run else ""
    reason = event.data.get("reason") or event.data.get("message") or ""
    whose = f"{safe(name)} " if name else ""
    say(f"{event.at.astimezone():%H:%M:%S} {whose}{event.state}{run}" + (f": {reason}" if reason else ""))


def end_of(client: Client, job_id: str, timeout_seconds: float | None = None, *, name: str = "") -> JobDetail:
    """Waits with progress on stderr and says how it ended; each line has the `name`, if there is one."""
    shown: list[str] = []

    def on_event(event: EventView) -> None:
        if shown[-1:] != [event.state] and event.state not in TERMINAL:
            say_event(event, name)
        shown.append(event.state)

    try:
        job = client.wait(job_id, timeout_seconds=timeout_seconds, on_event=on_event)
    except KeyboardInterrupt:
        say_detached(job_id)
        raise
    say(str(Ending(job, named=bool(name))))
    return job


def follow_to_end(
    client: Client, job_id: str, timeout_seconds: float | None, *, on_interrupt: Callable[[Client, str], None]
) -> int:
    """Copies the log of all runs to stdout and returns the job's exit code, or DETACHED after Ctrl-C.

    Raises StillRunning after the time-out; the job goes on.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # how some CI systems abort
    try:
        return _copy_log(client, job_id, timeout_seconds)
    except KeyboardInterrupt:
        on_interrupt(client, job_id)
        return ExitCode.DETACHED


def _copy_log(client: Client, job_id: str, timeout_seconds: float | None) -> int:
    began = time.monotonic()
    for piece in client.logs(job_id, run="all", follow=True, timeout_seconds=timeout_seconds):
        write_out(piece)
    job = client.wait(job_id, timeout_seconds=_left(timeout_seconds, began))
    say(str(Ending(job)))
    return Ending(job).code


def say_detached(job_id: str) -> None:
    """How to come back to a job that goes on."""
    say(f"\ndetached: job {job_id} goes on")
    say(f"  makeway logs -f {job_id}     follow it to its end, with its exit code")
    say(f"  makeway wait {job_id}        wait for its exit code\n  makeway cancel {job_id}      end it")


@app.command(epilog=EPILOG)
def wait(
    jobs: Jobs,
    timeout: Duration = None,
    patience: Patience = 60.0,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Wait for jobs to end and exit with the job's code; of several, with the first code that is not 0.

    --timeout is for all of them together.
    """
    client = connect(state_dir, patience_seconds=patience)
    with client:
        found = [(client.resolve(reference), reference) for reference in jobs]
        several = len(found) > 1
        ended = _ends_of(client, [(job_id, _named(job_id, word) if several else "") for job_id, word in found], timeout)
    if output is OutputFormat.JSON:
        print_json(ended[0] if len(ended) == 1 else ended)
    raise typer.Exit(next((Ending(job).code for job in ended if Ending(job).code), 0))


def _named(job_id: str, reference: str) -> str:
    """What to call a job: by its name where it was asked for by that, else by its id."""
    return job_id if reference.startswith("@") or job_id.startswith(reference) else reference


def _ends_of(client: Client, jobs: Sequence[tuple[str, str]], timeout_seconds: float | None) -> list[JobDetail]:
    """Waits for all, ids with the names that each line says.

    Raises StillRunning once the time-out, which counts for them together, is over.
    """
    began = time.monotonic()
    try:
        return [end_of(client, job_id, _left(timeout_seconds, began), name=name) for job_id, name in jobs]
    except StillRunning as error:
        raise StillRunning(error.job_id, time.monotonic() - began) from error


def _left(timeout_seconds: float | None, began: float) -> float | None:
    return None if timeout_seconds is None else max(0.0, timeout_seconds - (time.monotonic() - began))


@app.command(epilog=EPILOG)
def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="To the end; then exit with the job's code.")] = False,
    run: Annotated[str, typer.Option(metavar="N|all", help="One run of the job, or all in order.")] = "all",
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last so many lines.")] = None,
    patience: Patience = 60.0,
    state_dir: State = None,
) -> None:
    """Print a job's log, as its program wrote it."""
    run = run.lower()
    if run != "all" and not (run.isascii() and run.isdigit()):
        raise typer.BadParameter("a run's number from 1, or all", param_hint="--run")
    client = connect(state_dir, patience_seconds=patience)
    with client:
        job_id = client.resolve(job)
        for piece in client.logs(job_id, run=run, follow=follow, tail=tail):
            write_out(piece)
        if follow:
            raise typer.Exit(Ending(end_of(client, job_id)).code)
