"""The supervisor: one detached process a cluster, `python -m makeway.local.supervisor --state DIR`. A cluster's life:

1. Take the lock of the state folder, for life: there is one supervisor, and who finds the lock free knows that there is
   none.
2. End what an earlier supervisor left behind (services, servers); runs of jobs stay, an executor will find them.
3. Start PostgreSQL and Kafka side by side; migrate as soon as PostgreSQL answers.
4. Start the services. Ready when all are healthy.
5. Keep everything running (child.py) until SIGTERM.
6. Stop in order: admission, scheduler, executors (their runs are noticed first), telemetry, Kafka, PostgreSQL. Leave no
   process.

If it is killed, the kernel signals its children (Launch.death_signal), and the next `up` begins at 1.
"""

import argparse
import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from makeway.local.child import Child, ChildPlan, Pace
from makeway.local.cluster import ClusterFolder, ClusterSecrets, ClusterSettings, ensure_secrets, load_settings
from makeway.local.errors import LocalClusterError
from makeway.local.foundation import Foundation, free_settings
from makeway.local.leftovers import end_all
from makeway.local.logs import cut_large_logs
from makeway.local.private_files import make_runtime_folder, private_folder, write_private
from makeway.local.probes import service_probe
from makeway.local.processes import Launch, end, identify, is_alive
from makeway.local.services import DRAIN_FILE, Addresses, ServiceSpec, StopOrder, service_specs
from makeway.local.state_file import ChildState, ChildStatus, ClusterState, Phase, boot_id, read_state, write_state

__all__ = ["DEFAULT_GRACE_SECONDS", "Parts", "Supervisor", "main"]

_log = logging.getLogger(__name__)

DEFAULT_GRACE_SECONDS = 10.0
"""How long jobs get after their notice when the cluster goes down."""

_LOG_CHECK_SECONDS = 60.0
_LOCK_PATIENCE_SECONDS = 5.0
_STOP_MARGIN_SECONDS = 5.0

ServiceList = Callable[[ClusterFolder, ClusterSettings, ClusterSecrets, Addresses], list[ServiceSpec]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What the supervisor is made of, so that tests can give it other services and shorter times."""

    services: ServiceList = service_specs
    provision: tuple[str, ...] = (sys.executable, "-m", "makeway.local.provision")
    pace: Pace = field(default_factory=Pace)


class Supervisor:
    """Runs one cluster; `inherited` is the environment that services start from."""

    def __init__(self, folder: ClusterFolder, inherited: Mapping[str, str], parts: Parts) -> None:
        self._folder = folder
        self._inherited = inherited
        self._parts = parts
        self._stopping = asyncio.Event()
        self._children: dict[str, Child] = {}
        self._order: dict[str, StopOrder] = {}
        self._all_added = False
        _end_former_children(folder)
        self._state = _first_state(folder)

    async def run(self) -> int:
        """Steps 3 to 6. Returns the exit code: 0 after an ordered stop, 1 when the cluster could not be started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        failure = ""
        try:
            if await self._unless_stopped(self._start()):
                _log.info("ready at %s", self._state.url)
                await self._unless_stopped(self._housekeeping())
        except (LocalClusterError, OSError) as error:
            failure = str(error)
            _log.error("the cluster could not be started: %s", failure)
        await self._stop()
        self._change(replace(self._state, phase=Phase.FAILED if failure else Phase.STOPPED, reason=failure))
        return 1 if failure else 0

    async def _unless_stopped(self, work: Awaitable[None]) -> bool:
        """Work until it is done (True) or a stop is asked for (False)."""
        stopped = asyncio.create_task(self._stopping.wait())
        task = asyncio.ensure_future(work)
        await asyncio.wait([stopped, task], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False

    async def _start(self) -> None:
        settings = free_settings(self._folder, load_settings(self._folder))
        secrets = ensure_secrets(self._folder, settings.node_names)
        self._change(replace(self._state, url=settings.url))
        context = {"url": settings.url, "token": secrets.admin_token, "state": str(self._folder.root)}
        write_private(self._folder.context_file, json.dumps(context, indent=2) + "\n")
        foundation = Foundation(self._folder, settings, secrets, self._state.runtime_folder)
        for order, plan in foundation.child_plans(self._parts.pace):
            self._add(plan, order)
        await foundation.until_usable(self._children, self._parts.provision, self._inherited)
        addresses = foundation.addresses(self._inherited)
        for spec in self._parts.services(self._folder, settings, secrets, addresses):
            self._add(_plan_of(spec, self._folder, self._parts.pace), spec.order)
        self._all_added = True
        await asyncio.gather(*(child.until_healthy() for child in self._children.values()))

    def _add(self, plan: ChildPlan, order: StopOrder) -> None:
        child = Child(plan, self._heard)
        self._children[plan.name], self._order[plan.name] = child, order
        child.start()

    def _heard(self, status: ChildStatus) -> None:
        """A child changed: keep the state file true."""
        state = self._state.with_child(status)
        well = self._all_added and all(child.state is ChildState.HEALTHY for child in state.children.values())
        if well and state.phase in (Phase.STARTING, Phase.DEGRADED):
            state = replace(state, phase=Phase.READY)
        elif not well and state.phase is Phase.READY:
            state = replace(state, phase=Phase.DEGRADED)
        self._change(state)

    def _change(self, state: ClusterState) -> None:
        self._state = state
        try:
            write_state(self._folder, state)
        except OSError as error:  # a full disk must not end the watch over the processes
            _log.error("the state could not be written: %s", error)

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(_LOG_CHECK_SECONDS)
            cut_large_logs(self._folder.root / "logs")

    async def _stop(self) -> None:
        grace_seconds = _wanted_grace(self._folder)
        self._change(replace(self._state, phase=Phase.STOPPING))
        for order in StopOrder:
            if order is StopOrder.KAFKA:
                # Whatever carries the mark of this cluster by now is a job whose executor could not end it.
                runtime, nodes = self._state.runtime_folder, self._folder.nodes
                await asyncio.to_thread(end_all, runtime, nodes, grace_seconds=grace_seconds)
            names = [name for name, its in self._order.items() if its is order]
            await asyncio.gather(*(self._stop_child(name, order, grace_seconds) for name in names))
        shutil.rmtree(self._state.runtime_folder, ignore_errors=True)
        self._folder.stop_file.unlink(missing_ok=True)

    async def _stop_child(self, name: str, order: StopOrder, grace_seconds: float) -> None:
        child = self._children[name]
        if order is not StopOrder.EXECUTOR:
            await child.stop()
            return
        runtime = Path(child.plan.launch().environment["MAKEWAY_RUNTIME_DIR"])
        write_private(private_folder(runtime) / DRAIN_FILE, json.dumps({"grace_seconds": grace_seconds}) + "\n")
        await child.stop(signal.SIGUSR1, grace_seconds=grace_seconds + _STOP_MARGIN_SECONDS)


def _plan_of(spec: ServiceSpec, folder: ClusterFolder, pace: Pace) -> ChildPlan:
    launch = Launch(
        command=spec.command,
        environment=spec.environment,
        working_dir=folder.root,
        log_path=spec.log_path,
        stop_seconds=15.0,  # a little more than a service allows itself
    )

    def prepare() -> None:
        spec.health_file.unlink(missing_ok=True)  # the port in it was the former process's

    return ChildPlan(
        name=spec.name, launch=lambda: launch, probe=service_probe(spec.health_file), prepare=prepare, pace=pace
    )


def _end_former_children(folder: ClusterFolder) -> None:
    """Services that outlived a killed supervisor: the kernel told them to end, but may not have seen it through."""
    former = read_state(folder)
    if former is None or former.boot_id != boot_id():
        return
    for child in former.children.values():
        if child.process is not None and is_alive(child.process):
            _log.warning("ending %s, left behind by an earlier supervisor", child.name)
            end(child.process, signal.SIGTERM, grace_seconds=10)


def _first_state(folder: ClusterFolder) -> ClusterState:
    """The state to begin with. The former runtime folder is used again: runs that live on have their sockets there."""
    former = read_state(folder)
    runtime: Path | None = None
    if former is not None and former.runtime_folder.is_dir() and former.runtime_folder.stat().st_uid == os.geteuid():
        if former.boot_id == boot_id():
            runtime = private_folder(former.runtime_folder)
        else:
            shutil.rmtree(former.runtime_folder, ignore_errors=True)
    ourselves = identify(os.getpid())
    if ourselves is None:
        raise LocalClusterError("/proc does not show this process; makeway needs a mounted /proc")
    return ClusterState(
        phase=Phase.STARTING,
        supervisor=ourselves,
        boot_id=boot_id(),
        started_at=datetime.now(UTC),
        url="",
        runtime_folder=runtime or make_runtime_folder(),
        children={},
    )


def _wanted_grace(folder: ClusterFolder) -> float:
    """What `down --grace` asked for; the default when something else stops us, a shutdown of the host for example."""
    try:
        return float(json.loads(folder.stop_file.read_text())["grace_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_GRACE_SECONDS


def _take_lock(folder: ClusterFolder) -> IO[str] | None:
    """The lock, for as long as the file stays open; None if another supervisor has it.

    It is tried for a while, since whoever looks whether the cluster runs holds it for a moment.
    """
    lock = folder.lock_file.open("w")
    deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                return None
            time.sleep(0.02)
        else:
            return lock


def main(parts: Parts | None = None) -> int:
    """Entry point: returns at once in the caller's process, and goes on in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m makeway.local.supervisor", description=__doc__.split("\n")[0])
    parser.add_argument("--state", type=Path, required=True)
    folder = ClusterFolder(root=private_folder(parser.parse_args().state.absolute()))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    lock = _take_lock(folder)
    if lock is None:
        _log.error("another supervisor runs this cluster")
        return 1
    if os.fork() > 0:
        # Whoever called us need not wait for the supervisor: its parent is init from here on. It shares our lock.
        os._exit(0)
    with lock:
        return asyncio.run(_supervise(folder, parts or Parts()))


async def _supervise(folder: ClusterFolder, parts: Parts) -> int:
    return await Supervisor(folder, os.environ, parts).run()


if __name__ == "__main__":
    sys.exit(main())
