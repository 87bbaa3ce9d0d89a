"""A node with real shims and simulated cards, without a broker: plans go in by hand, facts are kept in a list."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from makeway_executor import clock, housekeeping
from makeway_executor.cards import SimulatedCards
from makeway_executor.facts import Teller
from makeway_executor.gpu_status import GpuStatusFile
from makeway_executor.gpu_watch import GpuWatch, WatchOptions
from makeway_executor.launch import NodeFolders
from makeway_executor.node import Node, NodeParts
from makeway_executor.plan_number import PlanNumberFile
from makeway_executor.recovery import Recovery
from makeway_executor.run_events import RunEvents
from makeway_executor.run_folder import RunFolder
from makeway_executor.shim import Spawner
from makeway_runtime.devices.simulated import SimulatedDevices, uuid_of
from makeway_schemas.ids import job_of
from makeway_schemas.plans import Launch, LeasedGpu, NodePlan, PlannedRun, Stop, Verb
from makeway_schemas.states import StopCause

NODE = "node-a"
GPUS = tuple(uuid_of(NODE, index) for index in range(4))
VRAM_MIB = 81920
DEADLINE_SECONDS = 20.0

SAVES = (
    "import os, signal, time, sys\n"
    "def save(*_):\n time.sleep(0.2); os.write(1, b'saved\\n'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save); os.write(1, b'ready\\n')\n"
    "while True: time.sleep(60)"
)
IGNORES = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(1, b'ready\\n')\n"
    "while True: time.sleep(60)"
)


def run_id(number: int) -> str:
    """A well-formed run id for a test's n-th job."""
    return f"{number:012d}.1"


def python(code: str) -> Launch:
    return Launch(command=(sys.executable, "-ISu", "-c", code))


def shell(script: str) -> Launch:
    return Launch(command=("/bin/sh", "-c", script))


SLEEP = Launch(command=("/bin/sleep", "300"))


def planned(number: int, launch: Launch | None = SLEEP, *, gpu: int = 0, **fields: Any) -> PlannedRun:
    """A run on one whole card."""
    name = run_id(number)
    defaults: dict[str, Any] = {
        "run_id": name,
        "job_id": job_of(name),
        "verb": Verb.RUN,
        "gpus": (LeasedGpu(gpu_id=GPUS[gpu], vram_mib=VRAM_MIB),),
        "launch": launch,
        "grace_seconds": 10.0,
    }
    return PlannedRun(**{**defaults, **fields})


def stopped(run: PlannedRun, cause: str = "preempt", *, grace: float = 10.0) -> PlannedRun:
    """The same run, to be stopped."""
    stop = Stop(cause=StopCause(cause), grace_seconds=grace)
    return run.model_copy(update={"verb": Verb.STOP, "stop": stop, "launch": None})


def withdrawn(run: PlannedRun) -> PlannedRun:
    return run.model_copy(update={"verb": Verb.WITHDRAW, "launch": None})


async def until(condition: Callable[[], Any], *, seconds: float = DEADLINE_SECONDS) -> Any:
    """Waits for a true answer and returns it."""
    async with asyncio.timeout(seconds):
        while not (answer := condition()):
            await asyncio.sleep(0.005)
    return answer


class Facts:
    """Where a node tells its facts."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def put(self, fact: Any, *, at_ns: int) -> None:
        assert at_ns <= clock.now_ns()
        self.told.append(fact)

    def of(self, number: int, kind: str) -> list[Any]:
        return [fact for fact in self.told if fact.kind == kind and fact.run_id == run_id(number)]

    def kinds(self, number: int) -> list[str]:
        return [fact.kind for fact in self.told if fact.run_id == run_id(number)]

    async def wait(self, number: int, kind: str) -> Any:
        found = await until(lambda: self.of(number, kind))
        return found[0]


class RememberingSpawner(Spawner):
    """Knows its shims, which a test has to reap; an executor ignores its children's deaths instead."""

    def __init__(self) -> None:
        super().__init__()
        self.pids: list[int] = []

    def spawn(self, folder: RunFolder, lock: int, control_path: str) -> tuple[int, socket.socket]:
        pid, connection = super().spawn(folder, lock, control_path)
        self.pids.append(pid)
        return pid, connection


def _is_reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


class NodeRun:
    """One executor's life over a state folder; another may follow on the same folder."""

    def __init__(self, state: Path, sockets: Path, *, session: str = "s1", boot: str = "", **options: Any) -> None:
        self.state, self.sockets, self.session = state, sockets, session
        self.facts = Facts()
        self.refusal = ""
        (state / "runs").mkdir(exist_ok=True, parents=True)
        self.devices = SimulatedDevices("4xA100-80GB", node=NODE, state_dir=state)
        teller = Teller(node_id=NODE, session=session, boot_id=boot or clock.boot_id())
        self.events = RunEvents(teller, self.facts, SimulatedCards(state))
        self.watch = GpuWatch(
            self.devices,
            self.events.runs,
            WatchOptions(quarantine_after_seconds=options.get("quarantine", 30.0), probation_seconds=300.0),
            GpuStatusFile(state / "gpus.json", boot_id=teller.boot_id),
        )
        self.spawner = RememberingSpawner()
        parts = NodeParts(
            run_root=state / "runs",
            folders=NodeFolders(
                sockets=sockets,
                checkpoints=state / "checkpoints",
                cgroup=housekeeping.writable_cgroup(NODE, state) if options.get("cgroups", True) else None,
                log_head_bytes=1_000_000,
                log_tail_bytes=100_000,
            ),
            spawner=self.spawner,
            watch=self.watch,
            plan_number=PlanNumberFile(options.get("plan_number", state / "plan-number")),
            refusal=lambda _planned: self.refusal,
            start_delay_seconds=options.get("start_delay", 0.0),
        )
        self.node = Node(self.events, parts)
        self.recovery = Recovery(self.node, self.events)
        self.number = self.node.applied[1]

    def adopt(self) -> None:
        self.recovery.adopt_all(self.state / "runs")

    def plan(self, *runs: PlannedRun, number: int | None = None, session: str | None = None, epoch: int = 1) -> bool:
        self.number = self.number + 1 if number is None else number
        plan = NodePlan(node_id=NODE, epoch=epoch, number=self.number, session=session or self.session, runs=runs)
        return self.node.apply(plan)

    def log(self, number: int) -> bytes:
        path = self.node.runs[run_id(number)].folder.log_path()
        return path.read_bytes() if path.exists() else b""

    def close(self) -> None:
        self.node.close()

    async def end_all(self) -> None:
        """Kills what is left; then lets go."""
        await until(lambda: all(run.link or not run.alive for run in self.node.runs.values()))
        await asyncio.wait_for(self.node.drain(0.0), DEADLINE_SECONDS)
        self.close()
        await until(lambda: all(map(_is_reaped, self.spawner.pids)))
