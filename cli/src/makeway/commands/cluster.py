"""``up`` and ``down``: the local cluster of one state folder."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from makeway.client import Client
from makeway.commands.options import Output, State, connect
from makeway.context import state_folder
from makeway.exit_codes import ExitCode
from makeway.local.cluster import GIVEN_NOTHING, Wishes
from makeway.local.errors import LocalClusterError
from makeway.local.lifecycle import Up, bring_up, take_down
from makeway.local.services import LOCAL_POOL
from makeway.output import OutputFormat, age, print_fields, print_json, print_out, say
from makeway.policy_file import load_policy

app = typer.Typer(rich_markup_mode=None)

_DEFAULT_GRACE_SECONDS: Final = 10.0
_REGISTER_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1


@app.command()
def up(
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, max=1000, help="Nodes on this host.")] = None,
    simulate: Annotated[
        str | None,
        typer.Option("--simulate", metavar="CARDS", help="Simulated cards of each node, for example 4xA100-80GB."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Nodes are called NAME-1, NAME-2, ...")] = None,
    postgres: Annotated[
        str | None, typer.Option("--postgres", metavar="DSN", help="Use this database; its role must make roles.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="[USER:PASSWORD@]HOST:PORT", help="Use this broker.")
    ] = None,
    kafka_home: Annotated[
        Path | None, typer.Option("--kafka-home", help="Take Kafka 4 from this folder instead of fetching it.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="FILE|PRESET", help="The policy to begin with (docs/policy.md).")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="The API's port on loopback.")] = None,
    output: Output = OutputFormat.TEXT,
    state_dir: State = None,
) -> None:
    """Start a cluster here; one that runs is left as it is (exit code 0). What was asked once is remembered."""
    root = state_folder(state_dir)
    wishes = Wishes(
        nodes=nodes, node_prefix=name, simulate=simulate, postgres_dsn=postgres, kafka=kafka, http_port=port
    )
    given = load_policy(policy) if policy is not None else None
    try:
        done = bring_up(root, wishes, kafka_home=kafka_home, report=say)
    except (LocalClusterError, OSError) as error:
        say(f"makeway: {error}")
        raise typer.Exit(ExitCode.FAILED) from error
    if not done.already:
        with connect(root) as client:
            if given is not None:
                client.apply_policy(LOCAL_POOL, given.document)
            _await_nodes(client, len(done.settings.node_names))
    if output is OutputFormat.JSON:
        print_json(_up_as_json(done, root))
        return
    if done.already and wishes != GIVEN_NOTHING:
        say("it runs already, so what was asked for now is not applied: `makeway down` first")
    if done.already and given is not None:
        say("it runs already; `makeway policy apply` changes its policy")
    _print_up(done, root, is_default=root == state_folder(None))


def _await_nodes(client: Client, nodes: int) -> None:
    """Until every node has reported itself, so that the first job finds its GPUs."""
    deadline = time.monotonic() + _REGISTER_SECONDS
    while client.cluster().nodes_ready < nodes:
        if time.monotonic() > deadline:
            say("not every node has reported itself yet; `makeway doctor` says more")
            return
        time.sleep(_POLL_SECONDS)


def _up_as_json(done: Up, root: Path) -> dict[str, object]:
    return {
        "already_running": done.already,
        "url": done.state.url,
        "state": str(root),
        "started_at": done.state.started_at.isoformat(),
        "nodes": list(done.settings.node_names),
        "simulated": done.settings.simulate,
        "gpus": done.gpus,
    }


def _print_up(done: Up, root: Path, *, is_default: bool) -> None:
    print_fields(
        [
            ("makeway", f"runs already, for {age(done.state.started_at)}" if done.already else "is up"),
            ("address", done.state.url),
            ("state", str(root)),
            ("gpus", done.gpus),
            ("nodes", ", ".join(done.settings.node_names)),
        ]
    )
    if not is_default:
        print_out(f"\nexport MAKEWAY_STATE={shlex.quote(str(root))}   # other commands find this cluster by it")
    print_out("\nnext:  makeway submit --gpus 1 -- sleep 60\n       makeway ps\n       makeway down")


@app.command()
def down(
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds that running jobs get after their notice.")
    ] = _DEFAULT_GRACE_SECONDS,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove all data too.")] = False,
    state_dir: State = None,
) -> None:
    """Stop the cluster and leave no process; its data stay, and running jobs are queued again by the next ``up``."""
    root = state_folder(state_dir)
    try:
        ran = take_down(root, grace_seconds=grace, wipe=wipe)
    except (LocalClusterError, OSError) as error:
        say(f"makeway: {error}")
        raise typer.Exit(ExitCode.FAILED) from error
    if ran or wipe:
        say(("stopped" if ran else "nothing ran") + (f"; {root} was wiped" if wipe else f"; data kept in {root}"))
    else:
        say(f"nothing runs on {root}")
