"""``doctor``: what is wrong, and what mends it."""

import importlib.metadata
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import httpx
import typer
from makeway_policy.quantities import quantity
from makeway_schemas.api import ClusterView, GpuView, Health, NodeView
from pydantic import ValidationError

from makeway.client import Client, Patience
from makeway.commands.options import Output, State
from makeway.commands.overview import silence_of
from makeway.context import CONTEXT_NAME, BadContext, Context, find_context
from makeway.errors import NoCluster, NoContact, Refused
from makeway.exit_codes import ExitCode
from makeway.local.cluster import ClusterFolder, load_settings
from makeway.local.state_file import ChildState, is_supervised, read_state
from makeway.output import OutputFormat, print_json, print_out, safe

try:
    import pynvml
except ImportError:  # installed with the node's parts only
    pynvml = None

app = typer.Typer(rich_markup_mode=None)

_CLOCK_SECONDS: Final = 2.0
_FREE_PERCENT: Final = 5.0
_SOUND_GPU: Final = frozenset({"FREE", "LEASED", "DRAINING", "CORDONED"})
"""Of a cordoned card its node's line says more."""


class Verdict(StrEnum):
    """OK; WARN: works, but look at it; FAIL: something does not work."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One check's result; ``mend`` is what to do about it."""

    check: str
    verdict: Verdict = Verdict.OK
    detail: str = ""
    mend: str = ""


@app.command()
def doctor(output: Output = OutputFormat.TEXT, state_dir: State = None) -> None:
    """Check contact, token, services, nodes, GPUs, disk, clocks and versions; each failure names its mend."""
    findings = list(_examine(state_dir))
    if output is OutputFormat.JSON:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print_out(f"{finding.verdict:<4}  {finding.check}: {safe(finding.detail)}")
            if finding.mend:
                print_out(f"      mend: {finding.mend}")
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


def _examine(state_dir: Path | None) -> Iterator[Finding]:
    try:
        context = find_context(state_dir)
    except (NoCluster, BadContext) as error:
        yield from _nvml()
        yield Finding(check="context", verdict=Verdict.FAIL, detail=str(error), mend="makeway up, or set MAKEWAY_URL")
        return
    if context.state_dir is not None and load_settings(ClusterFolder(root=context.state_dir)).simulate is not None:
        yield Finding(check="driver", detail="none is needed: the GPUs of this cluster are simulated")
    else:
        yield from _nvml()
    yield from _context(context)
    if context.state_dir is not None:
        yield from _processes(ClusterFolder(root=context.state_dir))
    yield from _contact(context)


def _context(context: Context) -> Iterator[Finding]:
    if context.state_dir is None:
        yield Finding(check="context", detail=f"{context.url} from MAKEWAY_URL")
        return
    path = context.state_dir / CONTEXT_NAME
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        detail = f"{path} holds a token and can be read by others (mode {mode:o})"
        yield Finding(check="context", verdict=Verdict.FAIL, detail=detail, mend=f"chmod 600 {path}")
    else:
        yield Finding(check="context", detail=str(path))
    usage = shutil.disk_usage(context.state_dir)
    percent = 100 * usage.free / usage.total
    full = percent < _FREE_PERCENT
    yield Finding(
        check="disk",
        verdict=Verdict.FAIL if full else Verdict.OK,
        detail=f"{percent:.0f} % of {usage.total // 2**30} GiB is free where {context.state_dir} lies",
        mend="make room: a node under 5 % takes no new runs" if full else "",
    )


def _processes(folder: ClusterFolder) -> Iterator[Finding]:
    """What the supervisor of a cluster on this host says of its processes; nothing where there is none."""
    if not folder.state_file.exists():
        return
    state = read_state(folder) if is_supervised(folder) else None
    if state is None:
        yield Finding(check="processes", verdict=Verdict.FAIL, detail="the cluster is down", mend="makeway up")
        return
    for child in state.children.values():
        well = child.state is ChildState.HEALTHY
        detail = child.state + (f": {child.reason}" if child.reason and not well else "")
        detail += f"; started again {quantity(child.restarts, 'time')}" if child.restarts else ""
        mend = "" if well else f"read {folder.root / 'logs' / child.name}.log; it is started again by itself"
        yield Finding(check=child.name, verdict=Verdict.OK if well else Verdict.FAIL, detail=detail, mend=mend)


def _contact(context: Context) -> Iterator[Finding]:
    try:
        began = time.time()
        answer = httpx.get(f"{context.url}/healthz", timeout=5, trust_env=False)
        health = Health.model_validate_json(answer.content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        detail = f"{context.url} does not answer: {error}"
        mend = "makeway up; for a remote cluster check address, TLS and firewall"
        yield Finding(check="contact", verdict=Verdict.FAIL, detail=detail, mend=mend)
        return
    except ValidationError:
        detail = f"what answers at {context.url} is not makeway"
        mend = "another program has the port: correct MAKEWAY_URL, or makeway down and up"
        yield Finding(check="contact", verdict=Verdict.FAIL, detail=detail, mend=mend)
        return
    yield Finding(check="contact", detail=context.url)
    yield from _health(health)
    yield from _clock(answer.headers.get("date"), began)
    yield from _with_token(context)


def _health(health: Health) -> Iterator[Finding]:
    detail = "; ".join(f"{name}: {text}" for name, text in health.checks.items())
    mend = "" if health.healthy else "read the logs in the state folder's logs/; makeway up starts what is not running"
    yield Finding(check="api", verdict=Verdict.OK if health.healthy else Verdict.FAIL, detail=detail, mend=mend)


def _clock(date: str | None, began: float) -> Iterator[Finding]:
    if date is None:
        return
    # The header has whole seconds, so up to one second of difference is no difference.
    apart = parsedate_to_datetime(date).timestamp() + 0.5 - (began + time.time()) / 2
    off = abs(apart) > _CLOCK_SECONDS
    yield Finding(
        check="clock",
        verdict=Verdict.WARN if off else Verdict.OK,
        detail=f"the server's clock is {apart:+.0f} s from this one" if off else "agrees with the server's",
        mend="set both by NTP; makeway measures durations on one clock, only shown times are off" if off else "",
    )


def _with_token(context: Context) -> Iterator[Finding]:
    try:
        with Client(context.url, context.token, patience=Patience(first_seconds=0, later_seconds=0)) as client:
            cluster, nodes, gpus = client.cluster(), client.nodes(), client.gpus()
    except Refused as error:
        mend = "makeway up writes a new context; or ask an admin for: makeway token create"
        yield Finding(check="token", verdict=Verdict.FAIL, detail=str(error), mend=mend)
        return
    except NoContact as error:
        mend = "read logs/admission.log in the state folder"
        yield Finding(check="token", verdict=Verdict.FAIL, detail=str(error), mend=mend)
        return
    yield Finding(check="token", detail="accepted")
    yield from _cluster(cluster)
    yield from _nodes(nodes)
    yield from _gpus(gpus)


def _cluster(cluster: ClusterView) -> Iterator[Finding]:
    own = importlib.metadata.version("makeway")
    same = cluster.version == own
    yield Finding(
        check="version",
        verdict=Verdict.OK if same else Verdict.WARN,
        detail=f"command {own}, cluster {cluster.version}",
        mend="" if same else "install the same version on both sides",
    )
    wrong = silence_of(cluster) if cluster.scheduler else "none owns the pool"
    if not wrong:
        yield Finding(check="scheduler", detail=f"{cluster.scheduler}, epoch {cluster.epoch}")
    else:
        mend = "read logs/scheduler.log in the state folder; waiting and running jobs are safe meanwhile"
        yield Finding(check="scheduler", verdict=Verdict.FAIL, detail=wrong, mend=mend)


def _nodes(nodes: Iterable[NodeView]) -> Iterator[Finding]:
    found = False
    for node in nodes:
        found = True
        check = f"node {node.node_id}"
        if node.state == "DEAD":
            mend = "start its agent, when it is to take part again"
            yield Finding(check=check, verdict=Verdict.WARN, detail=node.note or "is DEAD", mend=mend)
        elif node.state != "READY":
            mend = "look at the node and its agent; its jobs are not restarted meanwhile. If it is off for good: "
            mend += f"makeway node dead {node.node_id}"
            detail = f"is {node.state}" + (f"; it was {node.note}" if node.note else "")
            yield Finding(check=check, verdict=Verdict.FAIL, detail=detail, mend=mend)
        elif node.cordoned:
            detail = f"takes nothing new: {node.note or 'cordoned'}"
            mend = f"makeway node uncordon {node.node_id}, when it may be used again"
            yield Finding(check=check, verdict=Verdict.WARN, detail=detail, mend=mend)
        elif not node.accepts_runs:
            yield Finding(check=check, verdict=Verdict.WARN, detail=f"takes no runs: {node.refusal}", mend="see detail")
        else:
            yield Finding(check=check, detail=quantity(node.gpus, "GPU") + (" (simulated)" if node.simulated else ""))
    if not found:
        yield Finding(check="nodes", verdict=Verdict.FAIL, detail="none has registered", mend="start a node agent")


def _gpus(gpus: Iterable[GpuView]) -> Iterator[Finding]:
    for gpu in gpus:
        if gpu.state not in _SOUND_GPU:
            detail = f"is {gpu.state}" + (f": {gpu.reason}" if gpu.reason else "")
            yield Finding(check=f"gpu {gpu.node}/{gpu.index}", verdict=Verdict.WARN, detail=detail, mend=_mend(gpu))


def _mend(gpu: GpuView) -> str:
    if gpu.state == "LOST":
        return "see whether its node is up and its driver shows it"
    if gpu.failed and gpu.simulated:
        return "take its events from the node's hooks.json (docs/telemetry.md); it is used again once it is empty"
    if gpu.failed:
        return (
            "reset or replace it: it is used when its driver lists it again after that, or when its node has booted"
            ", not by being idle; where its sampler was stopped meanwhile, say so there (python -m makeway_telemetry"
            " mended, docs/telemetry.md). What runs on it goes on; makeway preempt moves it"
        )
    return "see what holds it (nvidia-smi); it is free again once proven idle"


def _nvml() -> Iterator[Finding]:
    if pynvml is None:
        return
    try:
        pynvml.nvmlInit()
        driver, count = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        detail = f"no GPU can be used here: {error}"
        mend = "with a GPU: install NVIDIA's driver; without: makeway up --simulate 4xA100-80GB"
        yield Finding(check="driver", verdict=Verdict.WARN, detail=detail, mend=mend)
    else:
        yield Finding(check="driver", detail=f"{driver}, {quantity(count, 'GPU')}")
