"""``node``: the hosts."""

from typing import Annotated

import typer
from makeway_schemas.api import NodeView

from makeway.commands.options import Output, State, connect
from makeway.commands.outcomes import outcome_of
from makeway.commands.overview import gib
from makeway.output import OutputFormat, age, print_json, print_out, print_table

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def node() -> None:
    """Nodes: the hosts with GPUs."""


@app.command("list")
def list_nodes(output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """List nodes and what they carry."""
    client = connect(state_dir)
    with client:
        nodes = client.nodes()
    if output is OutputFormat.JSON:
        print_json(nodes)
        return
    print_table(
        ("NODE", "POOL", "STATE", "SINCE", "GPUS", "LEASED", "CPUS", "MEMORY", "VERSION", "NOTE"), map(_row, nodes)
    )


Node = Annotated[str, typer.Argument(help="The node's name.")]
Reason = Annotated[str, typer.Option(help="Why, for whoever reads `node list`.")]


@app.command()
def cordon(node: Node, reason: Reason = "", state_dir: State = None) -> None:
    """Place nothing new on a node; what runs there goes on."""
    client = connect(state_dir)
    with client:
        print_out(f"{node}  {outcome_of(client, client.cordon(node, reason=reason).command_id)}")


@app.command()
def drain(
    node: Node,
    reason: Reason = "",
    force: Annotated[bool, typer.Option("--force", help="Also runs that something protects, at once.")] = False,
    state_dir: State = None,
) -> None:
    """Place nothing new on a node and have its runs leave, each with its grace as soon as nothing protects it.

    It holds until `makeway node uncordon`, also over a restart. What may not be preempted is waited for.
    """
    client = connect(state_dir)
    with client:
        print_out(f"{node}  {outcome_of(client, client.drain(node, reason=reason, force=force).command_id)}")


@app.command()
def uncordon(node: Node, state_dir: State = None) -> None:
    """Let a node take runs again; this ends a drain too."""
    client = connect(state_dir)
    with client:
        print_out(f"{node}  {outcome_of(client, client.uncordon(node).command_id)}")


@app.command()
def dead(node: Node, reason: Reason = "", state_dir: State = None) -> None:
    """Give up a node that is silent for good: its runs are lost and their jobs go back to the queue.

    Say it only of a node that is off: whatever runs there meanwhile runs beside the job's next run. Should the node be
    heard again, it is told to stop that, and takes part as before. A node that is heard is refused: drain it.
    """
    client = connect(state_dir)
    with client:
        print_out(f"{node}  {outcome_of(client, client.declare_dead(node, reason=reason).command_id)}")


def _row(node: NodeView) -> tuple[str, ...]:
    notes = [
        "simulated GPUs" if node.simulated else "",
        _closed(node),
        node.note,
        "" if node.accepts_runs else f"takes no runs: {node.refusal}",
    ]
    return (
        node.node_id,
        node.pool,
        node.state,
        age(node.state_since),
        str(node.gpus),
        str(node.gpus_leased),
        str(node.cpus),
        gib(node.memory_mib),
        node.version,
        "; ".join(note for note in notes if note),
    )


def _closed(node: NodeView) -> str:
    """That it is closed, where its note does not say so."""
    if "drained by " in node.note or ("cordoned by " in node.note and not node.draining):
        return ""
    return "draining" if node.draining else "cordoned" if node.cordoned else ""
