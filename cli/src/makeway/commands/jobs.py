"""``ps``, ``show``, ``cancel``, ``priority``, ``change``, ``preempt``, ``resume``."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from makeway_schemas.api import CommandAccepted, JobDetail, JobView, RunView
from makeway_schemas.durations import format_duration
from makeway_schemas.states import TERMINAL, WAITING, JobState

from makeway.client import JobQuery
from makeway.commands.options import Job, Jobs, Output, State, connect
from makeway.commands.outcomes import outcome_of, outcome_of_preemption
from makeway.output import (
    OutputFormat,
    age,
    in_few_units,
    in_local_time,
    local_time,
    print_fields,
    print_json,
    print_out,
    print_table,
    safe,
    say,
)

app = typer.Typer(rich_markup_mode=None)

_WHOLE: Final = re.compile(r"-?[0-9]{1,40}")

COLUMNS = ("ID", "NAME", "TEAM", "CLASS", "STATE", "GPUS", "NODE", "AGE", "PREEMPTED", "REASON")


def _job_row(job: JobView) -> tuple[str, ...]:
    return (
        job.job_id,
        job.name,
        job.team,
        job.class_name,
        job.state,
        _gpus(job),
        job.node or "-",
        age(job.submitted_at),
        str(job.preemptions),
        "; ".join(_remarks(job)),
    )


def _gpus(job: JobView) -> str:
    """What its run has; without one, what it asks for."""
    if job.gpus_held is not None:
        return str(job.gpus_held)
    return str(job.gpus) if job.gpus_max is None else f"{job.gpus}..{job.gpus_max}"


def _remarks(job: JobView) -> list[str]:
    """How it ended, or why it waits, with how its last run ended: the one says nothing of the other."""
    if job.state in TERMINAL:
        return [text for text in (job.message,) if text]
    return [in_local_time(text) for text in (job.message if job.state in WAITING else "", job.reason) if text]


@app.command()
def ps(
    state: Annotated[
        list[JobState] | None, typer.Option("--in", case_sensitive=False, help="Only jobs in this state.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="Only jobs of this team.")] = None,
    class_name: Annotated[str | None, typer.Option("--class", help="Only jobs of this class.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Only jobs with this label.")] = None,
    node: Annotated[str | None, typer.Option(help="Only jobs on this node.")] = None,
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Finished jobs of any age too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 1000,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """List jobs, newest first; finished ones for a day."""
    query = JobQuery(
        states=tuple(state or ()),
        team=team,
        class_name=class_name,
        name=name,
        labels=dict(_label(text) for text in label or ()),
        node=node,
        include_finished=all_jobs,
    )
    client = connect(state_dir)
    with client:
        jobs = list(client.jobs(query, limit=limit))
    if output is OutputFormat.JSON:
        print_json(jobs)
        return
    print_table(COLUMNS, (_job_row(job) for job in jobs))
    if len(jobs) == limit:
        say(f"the newest {limit} are shown; --limit shows more")


def _label(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--label")
    return name, value


@app.command()
def show(job: Job, output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """Show a job: what was asked for, where it is, its runs."""
    client = connect(state_dir)
    with client:
        detail = client.job(client.resolve(job))
    if output is OutputFormat.JSON:
        print_json(detail)
        return
    print_fields(_job_fields(detail))
    if detail.runs:
        print_out("")
        columns = ("RUN", "STATE", "NODE", "GPUS", "STARTED", "RAN", "END", "CODE", "ACKED", "RESUMED", "MESSAGE")
        print_table(columns, (_run_row(run) for run in detail.runs))


def _job_fields(job: JobDetail) -> list[tuple[str, str]]:
    command = job.spec.command
    return [
        ("id", job.job_id),
        ("name", job.name),
        ("state", job.state),
        ("reason", in_local_time(job.reason)),
        ("message", job.message),
        ("team", job.team),
        ("class", f"{job.class_name} (priority {job.priority})"),
        ("pool", job.pool),
        ("gpus", str(job.gpus) if job.spec.gpus_max is None else f"{job.gpus}..{job.spec.gpus_max}"),
        ("node", job.node or ""),
        ("command", " ".join(command) if command else "a script"),
        ("working dir", job.spec.working_dir or ""),
        ("labels", ", ".join(f"{name}={value}" for name, value in sorted(job.labels.items()))),
        ("submitted", f"{local_time(job.submitted_at)} by {job.submitted_by}"),
        ("first start", local_time(job.started_at)),
        ("ended", local_time(job.ended_at)),
        ("end", job.end_cause or ""),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("run time", _run_time(job)),
        ("preempted", f"{job.preemptions}x" if job.preemptions else ""),
        ("last acked step", "" if job.last_ack_step is None else str(job.last_ack_step)),
    ]


def _run_time(job: JobDetail) -> str:
    """Of all its runs, the one that goes on included."""
    seconds = job.used_seconds + sum(_runs_for(run) or 0.0 for run in job.runs if run.ended_at is None)
    return in_few_units(seconds) if seconds else ""


def _runs_for(run: RunView) -> float | None:
    """For how long it ran, or has run by now; None where it has not started, or nobody knows."""
    if run.run_seconds is not None or run.started_at is None or run.ended_at is not None:
        return run.run_seconds
    return max(0.0, (datetime.now(UTC) - run.started_at).total_seconds())


def _run_row(run: RunView) -> tuple[str, ...]:
    seconds = _runs_for(run)
    code = f"signal {run.signal}" if run.signal else "-" if run.exit_code is None else str(run.exit_code)
    return (
        str(run.number),
        run.state,
        run.node,
        ",".join(str(index) for index in run.gpu_indexes) or "-",
        local_time(run.started_at) or "-",
        "-" if seconds is None else format_duration(seconds) if run.ended_at is not None else in_few_units(seconds),
        (run.end_cause or "-") + (" (killed)" if run.forced else ""),
        code,
        "-" if run.ack_step is None else str(run.ack_step),
        "-" if run.resumed_step is None else str(run.resumed_step),
        run.message,
    )


@app.command()
def cancel(jobs: Jobs, output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """Cancel jobs; each is STOPPING until its process is gone. One that has ended stays as it is, and that is said."""
    client = connect(state_dir)
    with client:
        answers = [client.cancel(client.resolve(reference)) for reference in jobs]
    if output is OutputFormat.JSON:
        print_json(answers)
        return
    for answer in answers:
        print_out(_accepted(answer, "will be cancelled"))


# A value that begins with a minus sign is a value out of its range, no option that nobody knows.
@app.command(context_settings={"ignore_unknown_options": True})
def priority(
    job: Job,
    value: Annotated[str, typer.Argument(help="A value from 0, or `none` to take a manual value back.")],
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Give a job a manual priority, which holds at once."""
    taken_back = value.lower() == "none"
    if not taken_back and _WHOLE.fullmatch(value) is None:
        raise typer.BadParameter(f"{value!r} is neither a whole number nor `none`", param_hint="VALUE")
    client = connect(state_dir)
    with client:
        answer = client.set_priority(client.resolve(job), None if taken_back else int(value))
    if output is OutputFormat.JSON:
        print_json(answer)
        return
    print_out(_accepted(answer, "has its own priority again" if taken_back else f"has priority {value}"))


@app.command()
def change(
    job: Job,
    time_limit: Annotated[str | None, typer.Option(metavar="DURATION", help="Longest run time, or none.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="A date and time with its zone, or none.")
    ] = None,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Change the limits in time of a job that has not ended, also while it runs."""
    given = {"time_limit": time_limit, "deadline": deadline}
    limits = {name: None if value.lower() == "none" else value for name, value in given.items() if value is not None}
    if not limits:
        raise typer.BadParameter("name what is to change", param_hint="--time-limit, --deadline")
    client = connect(state_dir)
    with client:
        answer = client.change_limits(client.resolve(job), limits)
        outcome = outcome_of(client, answer.command_id)
    if output is OutputFormat.JSON:
        print_json(answer)
        return
    print_out(f"{answer.job_id}  {safe(answer.message or outcome)}")


@app.command()
def preempt(
    job: Job,
    run: Annotated[
        int | None, typer.Option(min=1, help="The number of the run; without it, the one it has now.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also where something protects its run; for admins.")] = False,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Stop a job's run with its grace and put the job back into the queue. A protected run is refused.

    One run is meant: if it has ended before it is told, a later one is left alone and that is said, with exit code 120.
    """
    client = connect(state_dir)
    with client:
        answer = client.preempt(client.resolve(job), run=run, force=force)
        outcome = outcome_of_preemption(client, answer)
    if output is OutputFormat.JSON:
        print_json(answer)
        return
    print_out(f"{answer.job_id}  {safe(outcome)}")


@app.command()
def resume(job: Job, output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """Let a held job go on, with all its tries."""
    client = connect(state_dir)
    with client:
        answer = client.resume(client.resolve(job))
        outcome = outcome_of(client, answer.command_id)
    if output is OutputFormat.JSON:
        print_json(answer)
        return
    print_out(f"{answer.job_id}  {safe(answer.message or outcome)}")


def _accepted(answer: CommandAccepted, effect: str) -> str:
    """What comes of a request; the server's own words where it has something to say."""
    return f"{answer.job_id}  {safe(answer.message) or f'{answer.state}, {effect}'}"
