"""``submit`` and ``run``: one flag for each field of the specification, a file, or both."""

import contextlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from makeway_schemas.api import Submitted

from makeway.client import Client
from makeway.commands.follow import Ending, end_of, follow_to_end, say_detached
from makeway.commands.meaningless import refuse_given
from makeway.commands.options import PATIENCE_HELP, Output, State, connect, duration
from makeway.errors import Refused, SpecInvalid, SpecProblem
from makeway.exit_codes import EPILOG
from makeway.output import OutputFormat, print_json, print_out, safe, say
from makeway.spec.build import build, load_file, placed_in
from makeway.spec.flags import collect, spec_flags, with_flags

app = typer.Typer(rich_markup_mode=None)

FLAGS = spec_flags()

File = Annotated[str | None, typer.Option("--file", "-f", help="A YAML or JSON job file; - is stdin. Flags beat it.")]
Command = Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Program and arguments.")]
Key = Annotated[str | None, typer.Option(help="The same key and job again give the same job, also from another call.")]
Duration = Annotated[float | None, typer.Option(parser=duration, metavar="DURATION", help="Stop waiting after it.")]
Patience = Annotated[float, typer.Option(parser=duration, metavar="DURATION", help=PATIENCE_HELP)]


def submit(
    context: typer.Context,
    command: Command = None,
    file: File = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and exit with the job's code.")] = False,
    timeout: Duration = None,
    patience: Patience = 60.0,
    idempotency_key: Key = None,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
    **given: Any,
) -> None:
    """Submit a job and print its id, alone, on stdout.

    Everything after -- is the command. With --wait, stdout still has the id alone; how it ends goes to stderr.
    """
    if not wait:
        refuse_given(context, ("timeout",), "without --wait")
    client = connect(state_dir, patience_seconds=patience)
    with client:
        submitted = _send(client, file, _flags(command, given), idempotency_key)
        if output is OutputFormat.JSON and not wait:
            print_json(submitted)
        elif output is OutputFormat.TEXT:
            print_out(submitted.job_id)
        if wait:
            job = end_of(client, submitted.job_id, timeout)
            if output is OutputFormat.JSON:
                print_json(job)
            raise typer.Exit(Ending(job).code)


def run(
    command: Command = None,
    file: File = None,
    timeout: Duration = None,
    patience: Patience = 60.0,
    idempotency_key: Key = None,
    state_dir: State = None,
    **given: Any,
) -> None:
    """Submit a job, follow its log on stdout, and exit with its code.

    Ctrl-C on a terminal detaches: the job goes on, and how to come back is said. Where CI is set it cancels the job.
    After --timeout the job goes on too.
    """
    client = connect(state_dir, patience_seconds=patience)
    with client:
        submitted = _send(client, file, _flags(command, given), idempotency_key)
        named = "" if submitted.name == submitted.job_id else f" ({safe(submitted.name)})"
        say(f"job {submitted.job_id}{named} submitted")
        raise typer.Exit(follow_to_end(client, submitted.job_id, timeout, on_interrupt=_interrupted))


def _flags(command: list[str] | None, given: dict[str, Any]) -> dict[str, Any]:
    values = collect(FLAGS, given)
    return values | {"command": tuple(command)} if command else values


def _send(client: Client, file: str | None, flags: dict[str, Any], idempotency_key: str | None) -> Submitted:
    document = load_file(file) if file else None
    spec = build(document, flags, _here())
    try:
        submitted = client.submit(spec, idempotency_key=idempotency_key, traceparent=os.environ.get("TRACEPARENT"))
    except Refused as refused:
        placed = placed_in(refused, document, flags)
        if placed is None:
            raise
        raise placed from refused
    if submitted.repeated:
        say("this key was known already: this is the job that it made")
    return submitted


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        problem = SpecProblem(field="working_dir", message="the folder you stand in does not exist any more; name one")
        raise SpecInvalid((problem,)) from error


def _interrupted(client: Client, job_id: str) -> None:
    """What Ctrl-C means: nobody comes back to a CI job that was aborted, a person may."""
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        with contextlib.suppress(KeyboardInterrupt):
            client.cancel(job_id)
            say(f"interrupted: job {job_id} is being cancelled")
        return
    say_detached(job_id)


app.command(epilog=EPILOG)(with_flags(FLAGS, submit))
app.command(epilog=EPILOG)(with_flags(FLAGS, run))
