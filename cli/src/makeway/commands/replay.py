"""``replay``: recorded traces on a virtual clock."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from makeway_policy.model import Mode
from makeway_policy.rules import Policy
from makeway_simulator import replay as replays
from makeway_simulator.errors import SimulatorError
from makeway_simulator.limits import SECONDS_MOST
from makeway_simulator.physics import Physics
from makeway_simulator.replay import GangSettings, PackingSettings, Replay, TraceFormat
from makeway_simulator.rivals.loop import Cost
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from makeway.commands.meaningless import refuse_given
from makeway.commands.options import file_named
from makeway.commands.overwriting import refuse_overwriting
from makeway.errors import ReplayRefused, SpecInvalid
from makeway.output import OutputFormat, print_json, print_out, print_table, say
from makeway.policy_file import is_preset, load_policy

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


def finite(value: float | None) -> float | None:
    """An option's number as it is. Raises BadParameter for NaN and what is beyond all bounds, which `min` lets by."""
    if value is not None and not (isfinite(value) and value <= SECONDS_MOST):
        raise typer.BadParameter(f"{value:g} is not a number of at most {SECONDS_MOST:g}")
    return value


Output = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", case_sensitive=False, help="text, or json: one object (docs/simulator.md)."),
]
Nodes = Annotated[
    str | None,
    typer.Option(help="The cluster: nodes x GPUs a node; else what an swf trace says, else 8x8 (compare, tune: 4x8)."),
]
Interval = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-interval",
        min=0.001,
        callback=finite,
        help="Seconds of work between saves; else at a notice only.",
    ),
]
Save = Annotated[float, typer.Option("--save-seconds", min=0, callback=finite, help="What a save takes.")]
Restore = Annotated[
    float,
    typer.Option("--restore-seconds", min=0, callback=finite, help="What a resume takes, unless the trace says."),
]
Grace = Annotated[
    float | None, typer.Option("--grace", min=0, callback=finite, help="Every job's grace; without it, its class's.")
]
Preempted = Annotated[
    Mode | None, typer.Option("--mode", case_sensitive=False, help="Every job's preemption mode; else its class's.")
]
Skip = Annotated[bool, typer.Option("--skip-broken", help="Skip broken lines and count them.")]


_OF_PODS = ("workload", "seeds", "orders")
"""Options of `replay` that only pods that stay have a meaning for."""
_OF_JOBS = ("nodes", "cost", "restore_seconds")
_OF_OUR_POLICY = ("checkpoint_interval", "save_seconds", "grace", "mode")
"""Of jobs that end; a policy that exists only to be compared with knows neither saves nor notices."""


@app.command("replay")
def replay(
    context: typer.Context,
    trace: Annotated[
        Path, typer.Argument(parser=file_named, metavar="trace", help="A trace file; for openb, the folder.")
    ],
    trace_format: Annotated[
        TraceFormat, typer.Option("--format", case_sensitive=False, help="What the file is.")
    ] = TraceFormat.EVENTS,
    nodes: Nodes = None,
    policy: Annotated[list[str] | None, typer.Option(help="A policy's name or file; may be given again.")] = None,
    cost: Annotated[
        Cost, typer.Option(case_sensitive=False, help="Pay for a start at every event, or once a resume.")
    ] = Cost.RESUME,
    checkpoint_interval: Interval = None,
    save_seconds: Save = 0.0,
    restore_seconds: Restore = 0.0,
    grace: Grace = None,
    mode: Preempted = None,
    workload: Annotated[str, typer.Option(help="openb: which pod list.")] = "default",
    seeds: Annotated[int | None, typer.Option(min=1, help="openb: how many of the arrival orders.")] = None,
    orders: Annotated[
        Path | None, typer.Option(parser=file_named, metavar="<path>", help="openb: another file of arrival orders.")
    ] = None,
    skip_broken: Skip = False,
    report: Annotated[Path | None, typer.Option(help="Write one self-contained HTML page here.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Replay a trace under one policy or several."""
    physics = Physics(
        checkpoint_interval_seconds=checkpoint_interval, save_seconds=save_seconds, restore_seconds=restore_seconds,
        grace_seconds=grace, mode=mode,
    )  # fmt: skip
    packing = replays.is_packing(trace_format)
    others = (*_OF_JOBS, *_OF_OUR_POLICY) if packing else _OF_PODS
    refuse_given(context, others, f"with --format {trace_format}")
    refuse_for_rivals(context, policy or [], _OF_OUR_POLICY)
    read = ([] if orders is None else [orders]) if packing else policy_files(policy or [])
    refuse_overwriting(context, "--report", report, [*replays.files_of(trace, trace_format), *read])
    found: list[Replay] = []
    for name in policy or ["frag" if packing else "makeway"]:
        if packing:
            found.append(_packed(PackingSettings(trace, workload, name, seeds, orders, skip_broken)))
        else:
            rules = rules_named(name)
            found.append(_replayed(GangSettings(trace, trace_format, nodes, name, rules, cost, physics, skip_broken)))
    if report is not None:
        write_page(report, replays.page_of(found))
    figures = [each.figures for each in found]
    if output is OutputFormat.JSON:
        print_json(figures[0] if len(figures) == 1 else {"replays": figures})
    else:
        _print_all(figures)


def refuse_for_rivals(context: typer.Context, policies: Collection[str], options: Collection[str]) -> None:
    """Raises BadParameter for options that are given where all policies are rivals, which know nothing of them."""
    if policies and all(replays.is_rival(name) for name in policies):
        refuse_given(
            context, options, f"under {' and '.join(dict.fromkeys(policies))}, which only starts and stops jobs"
        )


def policy_files(names: Iterable[str]) -> list[str]:
    """Those of the names that are read as files."""
    return [name for name in names if not (is_preset(name) or name in ("makeway", "-") or replays.is_rival(name))]


def rules_named(name: str) -> Policy | None:
    """The policy of a preset or a file; `makeway` is the default one. None for a rival.

    Raises SpecInvalid, and ReplayRefused where there is nothing of that name.
    """
    if replays.is_rival(name):
        return None
    try:
        return load_policy("default" if name == "makeway" else name).policy
    except SpecInvalid as error:
        if name and (Path(name).exists() or name == "-"):
            raise
        rivals = ", ".join(replays.rivals())
        raise ReplayRefused(f"{error}; policies to compare with are {rivals}") from error


def _packed(settings: PackingSettings) -> Replay:
    with refusals(), progress_bar(settings.policy) as told:
        return replays.replay_packing(settings, told)


def _replayed(settings: GangSettings) -> Replay:
    with refusals(), progress_bar(settings.policy) as told:
        return replays.replay_gangs(settings, told)


@contextmanager
def refusals() -> Iterator[None]:
    """What the simulator refuses, as an error of this command."""
    try:
        yield
    except SimulatorError as error:
        raise ReplayRefused(str(error)) from error


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr where that is a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        if console.is_terminal:
            yield lambda done, total: bar.update(task, completed=done, total=total)
        else:
            yield lambda done, total: None


def write_page(path: Path, text: str) -> None:
    """Write a page, and say where."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReplayRefused(f"{path} cannot be written: {error.strerror or error}") from error
    say(f"wrote {path}")


def _print_all(found: list[dict[str, Any]]) -> None:
    if "allocated_percent" in found[0]:
        loads = list(found[0]["allocated_percent"])
        rows = [(each["policy"], *(_share(each["allocated_percent"].get(load)) for load in loads)) for each in found]
        say(f"allocated GPU % by arrived load, {found[0]['workload']}, {found[0]['seeds']} orders")
        print_table(("POLICY", *(f"{load} %" for load in loads)), rows)
        return
    names = [name for name, value in found[0].items() if isinstance(value, (int, float, str))]
    print_table(("FIGURE", *(each["policy"] for each in found)), [_row(name, found) for name in names[1:]])
    for each in found:
        print_out("")
        rows = [(name, *(shown(value) for value in waits.values())) for name, waits in each["waits"].items()]
        print_table((f"WAITS ({each['policy']})", "JOBS", "MEAN S", "P50 S", "P95 S", "LONGEST S"), rows)


def _row(name: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    return (name, *(shown(each.get(name, "-")) for each in found))


def _share(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['mean']:.2f} ±{spread['sd']:.2f}"


def shown(value: Any) -> str:
    """A figure for a table: counts are whole."""
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
