"""``ack``: a job that is no Python program says what it has saved."""

from typing import Annotated

import typer

from makeway.job.control import ControlError, ack, inside_makeway

app = typer.Typer(rich_markup_mode=None)


@app.command("ack")
def acknowledge(
    step: Annotated[int, typer.Option(min=0, help="State up to this step is saved.")],
    size_bytes: Annotated[int | None, typer.Option("--bytes", min=0, help="Size of the checkpoint.")] = None,
    fraction: Annotated[float | None, typer.Option(min=0, max=1, help="Progress from 0 to 1.")] = None,
    epoch: Annotated[float | None, typer.Option(min=0, help="The epoch.")] = None,
) -> None:
    """Say from inside a job that a checkpoint is saved; returns once that word is kept."""
    if not inside_makeway():
        typer.echo("makeway: MAKEWAY_CONTROL is not set: ack is for inside a job", err=True)
        raise typer.Exit(1)
    try:
        ack(step, size_bytes=size_bytes, fraction=fraction, epoch=epoch)
    except ControlError as error:
        typer.echo(f"makeway: {error}", err=True)
        raise typer.Exit(1) from error
