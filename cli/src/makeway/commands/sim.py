"""``replay`` and ``sim``: recorded traces on a virtual clock."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from makeway_simulator.errors import SimulatorError
from makeway_simulator.replay import (
    GangSettings,
    PackingSettings,
    TraceFormat,
    is_packing,
    replay_gangs,
    replay_packing,
)
from makeway_simulator.rivals.loop import Cost

from makeway.errors import MakewayError
from makeway.output import OutputFormat, print_json, print_table, say

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="text, or json: one object (docs/simulator.md).")]


class ReplayRefused(MakewayError):
    """The trace, the policy or a value cannot be used."""


@app.callback()
def sim() -> None:
    """Replay, compare, tune and show policies on a virtual clock."""


@app.command("replay")
def replay(
    trace: Annotated[Path, typer.Argument(help="A trace file; for openb, the folder.")],
    trace_format: Annotated[TraceFormat, typer.Option("--format", help="What the file is.")],
    nodes: Annotated[str, typer.Option(help="The cluster: nodes x GPUs a node.")] = "8x8",
    policy: Annotated[list[str] | None, typer.Option(help="A policy's name or file; may be given again.")] = None,
    cost: Annotated[
        Cost, typer.Option(help="When a rival pays for a start: at every event, or per resume.")
    ] = Cost.RESUME,
    workload: Annotated[str, typer.Option(help="openb: which pod list.")] = "default",
    seeds: Annotated[int | None, typer.Option(min=1, help="openb: how many of the arrival orders.")] = None,
    orders: Annotated[Path | None, typer.Option(help="openb: another file of arrival orders.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Skip broken lines and count them.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Replay a trace under one policy or several."""
    found: list[dict[str, Any]] = []
    for name in policy or ["frag" if is_packing(trace_format) else "makeway"]:
        if is_packing(trace_format):
            packing = PackingSettings(
                folder=trace, workload=workload, policy=name, seeds=seeds, orders=orders, skip_broken=skip_broken
            )
            found.append(_guarded(lambda packing=packing: replay_packing(packing)))  # type: ignore[misc]
        else:
            gangs = GangSettings(
                trace=trace, trace_format=trace_format, nodes=nodes, policy=name, cost=cost, skip_broken=skip_broken
            )
            found.append(_guarded(lambda gangs=gangs: replay_gangs(gangs)))  # type: ignore[misc]
    if output is OutputFormat.JSON:
        print_json(found[0] if len(found) == 1 else {"replays": found})
        return
    for each in found:
        _print(each)


def _guarded(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except SimulatorError as error:
        raise ReplayRefused(str(error)) from error


def _print(result: dict[str, Any]) -> None:
    if "allocated_percent" in result:
        say(f"{result['policy']} on {result['workload']}: allocated GPU % by arrived load, {result['seeds']} orders")
        rows = [
            (load, f"{each['mean']:.2f}", f"{each['sd']:.2f}") for load, each in result["allocated_percent"].items()
        ]
        print_table(("ARRIVED", "ALLOCATED", "SD"), rows)
        return
    print_table(("FIGURE", "VALUE"), [(name, _shown(value)) for name, value in result.items()])


def _shown(value: Any) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else str(value)
