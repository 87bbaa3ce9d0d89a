"""``gpu``: the schedulable devices."""

import typer
from makeway_schemas.api import GpuView

from makeway.commands.options import Output, State, connect
from makeway.commands.overview import gib, measured
from makeway.output import OutputFormat, print_json, print_table

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def gpu() -> None:
    """GPUs: whole cards or MIG instances."""


@app.command("list")
def list_gpus(output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """List GPUs with their jobs and newest readings; an unknown reading is a dash."""
    client = connect(state_dir)
    with client:
        gpus = client.gpus()
    if output is OutputFormat.JSON:
        print_json(gpus)
        return
    columns = ("NODE", "GPU", "TYPE", "STATE", "JOBS", "NEXT", "VRAM", "USED", "UTIL", "POWER", "TEMP", "ID", "NOTE")
    print_table(columns, map(_row, gpus))


def _row(gpu: GpuView) -> tuple[str, ...]:
    read = measured(gpu.reading_age_seconds)
    return (
        gpu.node,
        str(gpu.index),
        gpu.type_name,
        gpu.state,
        ",".join(gpu.jobs) or "-",
        ",".join(gpu.next_jobs) or "-",
        gib(gpu.vram_mib),
        gib(gpu.vram_used_mib),
        "-" if gpu.utilisation_percent is None else f"{gpu.utilisation_percent:.0f} %",
        "-" if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
        "-" if gpu.temperature_celsius is None else f"{gpu.temperature_celsius:.0f} C",
        gpu.gpu_id,
        "; ".join([*(["simulated"] if gpu.simulated else []), *([gpu.reason] if gpu.reason else []), *read]),
    )
