"""``status --local``: the processes of the cluster on this host, from the supervisor's file; it needs no contact."""

from dataclasses import asdict
from pathlib import Path

import typer

from makeway.exit_codes import ExitCode
from makeway.local.cluster import ClusterFolder
from makeway.local.state_file import is_supervised, read_state
from makeway.output import OutputFormat, age, print_fields, print_json, print_out, print_table, say


def print_local_status(root: Path, output: OutputFormat) -> None:
    """Print the processes of the cluster on this host; exit code 1 when none runs."""
    folder = ClusterFolder(root=root)
    state = read_state(folder) if is_supervised(folder) else None
    if state is None:
        say(f"no cluster runs on {root}; `makeway up` starts one")
        raise typer.Exit(ExitCode.FAILED)
    if output is OutputFormat.JSON:
        children = [asdict(child) for child in state.children.values()]
        print_json({"phase": str(state.phase), "url": state.url, "started_at": state.started_at.isoformat(),
                    "state": str(root), "processes": children})  # fmt: skip
        return
    print_fields([("cluster", str(state.phase)), ("address", state.url), ("up for", age(state.started_at))])
    print_out("")
    rows = [
        (child.name, str(child.state), "-" if child.process is None else str(child.process.pid), str(child.restarts),
         child.reason)
        for child in state.children.values()
    ]  # fmt: skip
    print_table(("PROCESS", "STATE", "PID", "RESTARTS", "REASON"), rows)
