"""``status`` and ``preemptions``: the cluster as a whole."""

from datetime import datetime
from typing import Annotated

import typer
from makeway_policy.quantities import quantity
from makeway_schemas.api import ClusterView, GpuTypeFigures, PreemptionView
from makeway_schemas.durations import format_duration

from makeway.commands.local_status import print_local_status
from makeway.commands.options import Output, State, connect
from makeway.context import find_context, state_folder
from makeway.output import OutputFormat, local_time, print_fields, print_json, print_out, print_table

app = typer.Typer(rich_markup_mode=None)


@app.command()
def status(
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
    local: Annotated[bool, typer.Option("--local", help="Show the processes of the cluster on this host.")] = False,
) -> None:
    """Show the cluster: nodes, GPUs, memory, use, jobs by state."""
    if local:
        print_local_status(state_folder(state_dir), output)
        return
    context = find_context(state_dir)
    client = connect(state_dir)
    with client:
        view = client.cluster()
    if output is OutputFormat.JSON:
        print_json(view)
        return
    print_fields([("address", context.url), *_fields(view)])
    if view.by_type:
        print_out("")
        columns = (
            "POOL",
            "TYPE",
            "GPUS",
            "LEASED",
            "UNUSABLE",
            "VRAM",
            "VRAM LEASED",
            "VRAM USED",
            "UTILISATION",
            "NOTE",
        )
        print_table(columns, (_type_row(figures) for figures in view.by_type))


def _fields(view: ClusterView) -> list[tuple[str, str]]:
    jobs = ", ".join(f"{count} {state}" for state, count in view.jobs.items() if count) or "none"
    return [
        ("version", view.version),
        ("scheduler", _scheduler(view)),
        ("nodes", f"{view.nodes_ready} of {view.nodes} ready"),
        ("gpus", f"{view.gpus_leased} of {view.gpus} leased"),
        ("jobs", jobs),
    ]


def _scheduler(view: ClusterView) -> str:
    if not view.scheduler:
        return "none: nothing is decided until one is back"
    silence = silence_of(view)
    return f"{silence}: nothing is decided until it does" if silence else view.scheduler


def silence_of(view: ClusterView) -> str:
    """That the scheduler is there and does not answer; empty where it does."""
    if view.scheduler_silent_seconds is None:
        return ""
    seconds = format_duration(round(view.scheduler_silent_seconds))
    return f"{view.scheduler} does not answer, no sign of life for {seconds}"


def _type_row(figures: GpuTypeFigures) -> tuple[str, ...]:
    notes = ["simulated"] if figures.simulated else []
    notes += measured(figures.readings_age_seconds)
    if figures.unknown_readings:
        notes.append(f"{quantity(figures.unknown_readings, 'reading')} unknown, left out")
    return (
        figures.pool,
        figures.type_name,
        str(figures.gpus),
        str(figures.gpus_leased),
        str(figures.gpus_unusable),
        gib(figures.vram_mib),
        gib(figures.vram_leased_mib),
        gib(figures.vram_used_mib),
        "-" if figures.utilisation_percent is None else f"{figures.utilisation_percent:.0f} %",
        "; ".join(notes),
    )


def measured(age_seconds: float | None) -> list[str]:
    """How old readings are: what they show may have ended since."""
    return [] if age_seconds is None else [f"measured {format_duration(round(age_seconds))} ago"]


def gib(mib: int | None) -> str:
    """MiB as GiB for reading; an unknown value is a dash, never 0."""
    return "-" if mib is None else f"{mib / 1024:.4g} GiB"


@app.command()
def preemptions(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Only those that this job caused or suffered.")
    ] = None,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """List preemptions, newest first: who made way for whom, and what it cost."""
    client = connect(state_dir)
    with client:
        filters = {} if job is None else {"job": client.resolve(job)}
        records = client.preemptions(**filters)
    if output is OutputFormat.JSON:
        print_json(records)
        return
    columns = (
        "DECIDED",
        "VICTIM",
        "FOR",
        "TRIGGER",
        "NOTICE",
        "ACKED",
        "EXIT",
        "EMPTY",
        "NEXT STARTED",
        "LOST GPU-S",
        "NOTE",
    )
    print_table(columns, (_preemption_row(record) for record in records))


def _preemption_row(record: PreemptionView) -> tuple[str, ...]:
    notes = (
        ["void: it had not started, or ended for another reason"]
        if record.void
        else ["killed after its grace"]
        if record.forced
        else []
    )
    if record.resumed_step is not None:
        notes.append(f"resumed at step {record.resumed_step}")
    return (
        local_time(record.decided_at),
        record.victim_run,
        record.preemptor_run or record.preemptor_job or "-",
        record.trigger,
        *(
            _step(record.decided_at, at)
            for at in (record.noticed_at, record.acked_at, record.exited_at, record.empty_at, record.bound_at)
        ),
        "-" if record.lost_gpu_seconds is None else f"{record.lost_gpu_seconds:.1f}",
        "; ".join(notes),
    )


def _step(decided_at: datetime, at: datetime | None) -> str:
    """How long after the decision a step was; a run that ended by itself may have done so before it."""
    if at is None:
        return "-"
    seconds = (at - decided_at).total_seconds()
    return f"+{seconds:.3f} s" if seconds >= 0 else f"{-seconds:.3f} s before"
