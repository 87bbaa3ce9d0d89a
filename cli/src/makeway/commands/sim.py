"""``sim``: policies compared, tuned and shown on a virtual clock."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from makeway_policy.model import Mode
from makeway_simulator import demo as demos
from makeway_simulator import replay as replays
from makeway_simulator import tune as tuning
from makeway_simulator.comparison import Comparison, Difference, compare_policies
from makeway_simulator.demo_page import demo_page
from makeway_simulator.objective import Weights
from makeway_simulator.physics import Physics
from makeway_simulator.readers.table import Skipping
from makeway_simulator.replay import TraceFormat, read_trace
from makeway_simulator.trace import Cluster, Trace
from makeway_simulator.tune import Search, Trial, Tuning
from makeway_simulator.workload import Mix, make

from makeway.commands import replay as replaying
from makeway.commands import scenario as scenarios
from makeway.commands.meaningless import refuse_given
from makeway.commands.options import file_named
from makeway.commands.overwriting import refuse_overwriting
from makeway.commands.replay import Grace, Interval, Nodes, Output, Restore, Save, Skip, finite, progress_bar, refusals
from makeway.output import OutputFormat, print_json, print_out, print_table, say
from makeway.policy_file import load_policy

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

TraceFile = Annotated[
    Path | None,
    typer.Option("--trace", parser=file_named, metavar="<path>", help="A trace; without one, a made-up workload."),
]
Format = Annotated[TraceFormat, typer.Option("--format", case_sensitive=False, help="What the trace is.")]
Seed = Annotated[int, typer.Option(help="Of the made-up workload, and of the search.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=100_000, help="Jobs of the made-up workload.")]


_NODES: Final = "4x8"
"""The cluster where neither the caller nor the trace names one."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the workload comes from; without a trace it is made up."""

    trace: Path | None
    trace_format: TraceFormat
    skip_broken: bool


@app.callback()
def sim() -> None:
    """Replay, compare, tune and show policies on a virtual clock."""


app.command("replay")(replaying.replay)
app.command("scenario")(scenarios.scenario)


@app.command()
def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="A preset, a policy file, or a rival's name.")],
    second: Annotated[str, typer.Argument(metavar="B", help="What to compare it with.")],
    trace: TraceFile = None,
    trace_format: Format = TraceFormat.EVENTS,
    nodes: Nodes = None,
    jobs: Jobs = 300,
    seed: Seed = 1,
    checkpoint_interval: Interval = None,
    save_seconds: Save = 10.0,
    restore_seconds: Restore = 30.0,
    skip_broken: Skip = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Replay one workload under two policies and set the figures side by side."""
    _refuse_of_other_workload(context, trace, ("jobs", "seed"))
    replaying.refuse_for_rivals(context, (first, second), ("checkpoint_interval", "save_seconds"))
    physics = Physics(
        checkpoint_interval_seconds=checkpoint_interval, save_seconds=save_seconds, restore_seconds=restore_seconds
    )
    with refusals(), progress_bar(f"{first}, {second}") as told:
        workload, cluster = _workload(_Source(trace, trace_format, skip_broken), nodes, Mix(jobs=jobs), seed)
        named = {name: replaying.rules_named(name) for name in (first, second)}
        comparison = Comparison(trace=workload, cluster=cluster, physics=physics, policies=tuple(named.items()))
        found = compare_policies(comparison, told)
    if output is OutputFormat.JSON:
        print_json(
            {"a": first, "b": second, "nodes": str(cluster), "figures": {each.name: _plain(each) for each in found}}
        )
        return
    print_table(("FIGURE", first, second, "CHANGE"), [_difference(each) for each in found])


def _plain(each: Difference) -> dict[str, Any]:
    return {"a": each.first, "b": each.second, "change_percent": each.change_percent}


def _difference(each: Difference) -> tuple[str, str, str, str]:
    change = "-" if each.change_percent is None else f"{each.change_percent:+.1f} %"
    return (each.name, replaying.shown(each.first), replaying.shown(each.second), change)


@app.command()
def demo(
    context: typer.Context,
    delta: Annotated[int, typer.Option(min=1, help="How much higher a priority must be to evict.")] = 10,
    grace: Grace = 30.0,
    checkpoint_interval: Interval = 120.0,
    sla_wait: Annotated[
        float | None, typer.Option(min=1, callback=finite, help="Seconds after which low and normal jobs age.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option(case_sensitive=False, help="What the page shows first; off is no preemption.")
    ] = Mode.CHECKPOINT,
    report: Annotated[Path | None, typer.Option(help="Write the page here: one file, to be stepped through.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show what each preemption strategy costs and gains, on one small workload."""
    if report is None:
        refuse_given(context, ("mode",), "without --report: the table has every mode")
    choice = demos.Choice(
        mode=mode,
        grace_seconds=30.0 if grace is None else grace,
        interval_seconds=checkpoint_interval,
        delta=delta,
        sla_wait_seconds=sla_wait,
    )
    rows = demos.table(choice)
    if report is not None:
        replaying.write_page(report, demo_page(choice))
    if output is OutputFormat.JSON:
        print_json({"strategies": [demos.as_figures(each) for each in rows]})
        return
    say("4 GPUs; training of low and normal class, then urgent work. Waits are of urgent and high jobs.")
    say(demos.LOST)
    columns = ("STRATEGY", "MEAN WAIT", "LONGEST WAIT", "TRAINING DONE", "GPU-SECONDS LOST", "EVICTIONS", "CANCELLED")
    print_table(columns, [_strategy(each) for each in rows])
    if report is None:
        say("--report demo.html writes a page on which each step can be seen.")


def _strategy(row: demos.Row) -> tuple[str, ...]:
    done = f"{row.training_done_at:.0f} s" if row.training_done_at else "never"
    return (
        row.strategy, f"{row.mean_wait_seconds:.1f} s", f"{row.longest_wait_seconds:.1f} s", done,
        f"{row.lost_gpu_seconds:.0f}", str(row.preemptions), str(row.cancelled),
    )  # fmt: skip


@app.command()
def tune(
    context: typer.Context,
    policy: Annotated[str, typer.Argument(metavar="[POLICY]", help="The preset or file to start from.")] = "default",
    trace: TraceFile = None,
    trace_format: Format = TraceFormat.EVENTS,
    nodes: Nodes = None,
    jobs: Jobs = 300,
    alpha: Annotated[float, typer.Option(min=0, callback=finite, help="Weight of utilisation (0 to 1).")] = 1.0,
    beta: Annotated[
        float, typer.Option(min=0, callback=finite, help="Weight of the mean wait (in mean run times).")
    ] = 0.5,
    gamma: Annotated[float, typer.Option(min=0, callback=finite, help="Weight of preemptions (per job).")] = 0.2,
    fix: Annotated[list[str] | None, typer.Option(help="name=number: keep a value; may be given again.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Settings to try.")] = 40,
    seed: Seed = 1,
    save_seconds: Save = 10.0,
    restore_seconds: Restore = 30.0,
    skip_broken: Skip = False,
    write: Annotated[Path | None, typer.Option(help="Write the best policy as a file here.")] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Search policy values for the best alpha x utilisation - beta x wait - gamma x preemptions."""
    _refuse_of_other_workload(context, trace, ("jobs",))
    read = [] if trace is None else replays.files_of(trace, trace_format)
    refuse_overwriting(context, "--write", write, [*read, *replaying.policy_files([policy])])
    given = load_policy(policy)
    with refusals(), progress_bar("trials") as told:
        workload, cluster = _workload(_Source(trace, trace_format, skip_broken), nodes, Mix(jobs=jobs), seed)
        search = Search(
            trace=workload,
            cluster=cluster,
            document=given.document,
            physics=Physics(save_seconds=save_seconds, restore_seconds=restore_seconds),
            weights=Weights(alpha=alpha, beta=beta, gamma=gamma),
            fixed=tuning.parse_fixed(fix or []),
            trials=trials,
            seed=seed,
        )
        found = tuning.tune(search, lambda done: told(done, trials))
    best = found.front[0]
    if write is not None:
        text = f"# By `makeway sim tune`: objective {best.objective:.4f}, from {found.start.objective:.4f}.\n"
        replaying.write_page(write, text + yaml.safe_dump(dict(best.document), sort_keys=False))
    if output is OutputFormat.JSON:
        print_json(_tuning(found))
        return
    _print_front(found)


def _print_front(found: Tuning) -> None:
    rows = [_trial("start", found.start), *(_trial(str(at), each) for at, each in enumerate(found.front, start=1))]
    columns = ("FRONT", "OBJECTIVE", "UTILISATION", "WAIT", "PREEMPTIONS", "CHECKPOINT EVERY", "VALUES")
    print_table(columns, rows)
    print_out("")
    print_out("# the best one, as a policy file")
    print_out(yaml.safe_dump(dict(found.front[0].document), sort_keys=False).rstrip())


def _trial(name: str, trial: Trial) -> tuple[str, ...]:
    terms = trial.terms
    every = "-" if trial.interval_seconds is None else f"{trial.interval_seconds:.0f} s"
    values = " ".join(f"{path}={value:.4g}" for path, value in trial.values.items() if path != tuning.INTERVAL)
    return (
        name, f"{trial.objective:.4f}", f"{terms.utilisation:.3f}", f"{terms.wait:.3f} run times",
        f"{terms.preemptions:.3f} a job", every, values or "-",
    )  # fmt: skip


def _tuning(found: Tuning) -> dict[str, Any]:
    return {
        "tried": found.tried,
        "units": {"utilisation": "part of all GPU-seconds", "wait": "mean run times", "preemptions": "per job"},
        "start": _as_json(found.start),
        "front": [_as_json(each) for each in found.front],
    }


def _as_json(trial: Trial) -> dict[str, Any]:
    return {
        "objective": trial.objective,
        "utilisation": trial.terms.utilisation,
        "wait": trial.terms.wait,
        "preemptions": trial.terms.preemptions,
        "checkpoint_interval_seconds": trial.interval_seconds,
        "policy": dict(trial.document),
    }


def _refuse_of_other_workload(context: typer.Context, trace: Path | None, of_made_up: tuple[str, ...]) -> None:
    """Raises BadParameter for an option of the made-up workload beside a trace, and of a trace without one."""
    if trace is None:
        refuse_given(context, ("trace_format", "skip_broken"), "without --trace")
    else:
        refuse_given(context, of_made_up, "with --trace: it is of the made-up workload")


def _workload(source: _Source, nodes: str | None, mix: Mix, seed: int) -> tuple[Trace, Cluster]:
    """The workload and the cluster that it runs on. Raises SimulatorError."""
    if source.trace is None:
        cluster = Cluster.parse(_NODES if nodes is None else nodes)
        return make(mix, cluster, seed), cluster
    trace = read_trace(source.trace, source.trace_format, Skipping(allowed=source.skip_broken))
    return trace, trace.cluster_of(nodes, _NODES)
