"""``node``: the hosts."""

import typer
from makeway_schemas.api import NodeView

from makeway.commands.options import Output, State, connect
from makeway.commands.overview import gib
from makeway.output import OutputFormat, age, print_json, print_table

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


def _row(node: NodeView) -> tuple[str, ...]:
    notes = [
        "simulated GPUs" if node.simulated else "",
        "cordoned" if node.cordoned else "",
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
