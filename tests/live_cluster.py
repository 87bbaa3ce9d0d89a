"""A whole cluster as a user has it, started through `makeway up`, and what a test does to it.

`LiveCluster.submit` gives a `LiveJob`, a small program that takes instructions from its test (system/scripted_job.py),
so a test can hold a preemption at any step without sleeping. `kill` and `wipe_kafka` break things; `laws.py` says
whether the laws held.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg
import httpx
from makeway.client import Client
from makeway.local.cluster import ClusterFolder
from makeway.local.processes import ProcessIdentity, is_alive
from makeway.local.state_file import ChildState, ClusterState, read_state
from makeway_schemas.api import JobDetail, TeamBody
from makeway_schemas.states import TERMINAL
from servers import KafkaAddress

MAKEWAY: Final = Path(sys.executable).with_name("makeway")
SCRIPT: Final = Path(__file__).parent / "system" / "scripted_job.py"
DEADLINE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.02

T = TypeVar("T")


class TooLate(AssertionError):
    """A condition that a test waited for did not come true."""


def wait_until(condition: Callable[[], T], what: str, *, within: float = DEADLINE_SECONDS) -> T:
    """The first truthy value of the condition. Raises TooLate with `what` and the last value."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TooLate(f"not within {within:g} s: {what}; the last value was {value!r}")
        time.sleep(_LOOK_SECONDS)


@dataclass(kw_only=True)
class LiveJob:
    """One scripted job: what it wrote, what the API says of it, and the pipe into it."""

    cluster: "LiveCluster"
    job_id: str
    folder: Path
    may_die_early: bool = False
    """A run of it may be ended before its program has written a line."""

    def journal(self, what: str | None = None, *, run: int | None = None) -> list[dict[str, Any]]:
        """The lines that the job's runs wrote, in order."""
        try:
            text = (self.folder / "journal").read_text()
        except FileNotFoundError:
            return []
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return [each for each in lines if what in (None, each["what"]) and run in (None, each["run"])]

    def wait_for(self, what: str, *, run: int | None = None, within: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """The first such line of a run (of any)."""
        return wait_until(
            lambda: (self.journal(what, run=run) or [{}])[0], f"{self.folder.name}: {what}", within=within
        )

    @property
    def runs(self) -> list[int]:
        """The numbers of the runs that have started, in the order of their starts."""
        return [each["run"] for each in self.journal("started")]

    def pid(self, run: int | None = None) -> int:
        """The process id of a run, the newest by default."""
        return int(self.journal("started", run=run)[-1]["pid"])

    def tell(self, *instructions: str, run: int | None = None) -> None:
        """Give instructions to a run, the newest by default."""
        pipe = self.folder / f"control.{run or self.runs[-1]}"
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            raise AssertionError(f"{self.folder.name} does not listen to {instructions}: {error}") from error
        try:
            os.write(descriptor, "".join(f"{each}\n" for each in instructions).encode())
        finally:
            os.close(descriptor)

    def obey(self, instruction: str, *, run: int | None = None) -> None:
        """Give one instruction and wait until it is carried out."""
        before = len(self.journal("obeyed"))
        self.tell(instruction, run=run)
        wait_until(lambda: len(self.journal("obeyed")) > before, f"{self.folder.name} obeys {instruction!r}")

    def view(self) -> JobDetail:
        """The job as the API shows it."""
        return self.cluster.client.job(self.job_id)

    def wait_state(self, *states: str, within: float = DEADLINE_SECONDS) -> JobDetail:
        """The job, once it is in one of the states."""
        last: list[JobDetail] = []

        def reached() -> JobDetail | None:
            last[:] = [self.view()]
            return last[0] if last[0].state in states else None

        try:
            return wait_until(reached, f"{self.folder.name} is {' or '.join(states)}", within=within)
        except TooLate as late:
            view = last[0]
            raise TooLate(f"{late}; it is {view.state} ({view.reason or view.message})") from None

    def wait_end(self, *, within: float = DEADLINE_SECONDS) -> JobDetail:
        """The job, once it has reached its terminal state."""
        return self.wait_state(*TERMINAL, within=within)

    def cancel(self) -> None:
        """Ask for its end."""
        self.cluster.client.cancel(self.job_id)

    def alive(self, run: int | None = None) -> bool:
        """Whether the process of a run is there."""
        return Path(f"/proc/{self.pid(run)}").exists() and not _is_zombie(self.pid(run))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@dataclass(kw_only=True)
class LiveCluster:
    """A running cluster of one state folder."""

    root: Path
    work: Path
    """Folders of scripted jobs, their locks and their `violations`."""
    environment: dict[str, str]
    client: Client
    url: str
    token: str
    jobs: list[LiveJob] = field(default_factory=list)
    """Those that the test at hand submitted."""

    @property
    def folder(self) -> ClusterFolder:
        """The paths of its state folder."""
        return ClusterFolder(root=self.root)

    @property
    def state(self) -> ClusterState:
        """What its supervisor says."""
        return wait_until(lambda: read_state(self.folder), "the cluster's state can be read")

    def http(self, token: str | None = None) -> httpx.Client:
        """A plain HTTP client, with the admin's token or another one; without one for an empty text."""
        chosen = self.token if token is None else token
        headers = {"authorization": f"Bearer {chosen}"} if chosen else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)

    def run(self, *arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """The command, on this cluster."""
        return subprocess.run(
            [MAKEWAY, *arguments], env=self.environment, check=check, text=True, capture_output=True, timeout=90,
            **options,
        )  # fmt: skip

    def submit(self, name: str, *, on_notice: str = "hold", grace: float = 30.0, **spec: Any) -> LiveJob:
        """Submit a scripted job. `name` is that of its folder, unique within the cluster."""
        folder = self.work / name
        folder.mkdir()
        preemption = {"grace": grace, "mode": "CHECKPOINT", **spec.pop("preemption", {})}
        if spec.get("class") == "urgent":
            del preemption["mode"]
        body = {
            "name": name,
            "command": [sys.executable, "-I", "-S", str(SCRIPT), str(folder), on_notice],
            "preemption": preemption,
            **spec,
        }
        key = spec.pop("idempotency_key", None)
        body.pop("idempotency_key", None)
        submitted = self.client.submit(body, idempotency_key=key)
        job = LiveJob(cluster=self, job_id=submitted.job_id, folder=folder)
        self.jobs.append(job)
        return job

    def sql(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        """Rows of a query, as the superuser."""
        return asyncio.run(_fetch(self.superuser_dsn(), query, arguments))

    def superuser_dsn(self) -> str:
        """The address of its database with every right."""
        password = json.loads(self.folder.secrets_file.read_text())["postgres_password"]
        return f"postgresql://postgres:{password}@/makeway?host={_socket_folder(self)}&port=5432"

    def kafka(self) -> KafkaAddress:
        """The address of its broker."""
        secrets = json.loads(self.folder.secrets_file.read_text())
        port = json.loads(self.folder.settings_file.read_text())["kafka_port"]
        return KafkaAddress(bootstrap=f"127.0.0.1:{port}", username="makeway", password=secrets["kafka_password"])

    def process(self, name: str) -> ProcessIdentity:
        """The process of one of its children: admission, scheduler, executor-node-1, telemetry, kafka, postgres ..."""
        return wait_until(lambda: self.state.children[name].process, f"{name} has a process")

    def kill(self, name: str) -> ProcessIdentity:
        """End a child with SIGKILL; its supervisor starts it again. Returns who was killed."""
        victim = self.process(name)
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(victim), f"{name} is gone")
        return victim

    def wait_healthy(self, name: str, *, instead_of: ProcessIdentity, within: float = 40.0) -> None:
        """Wait until a child runs again, as another process, and is well."""

        def well() -> bool:
            child = self.state.children[name]
            return child.state is ChildState.HEALTHY and child.process not in (None, instead_of)

        wait_until(well, f"{name} is healthy again", within=within)

    def kill_and_wait(self, name: str) -> None:
        """End a child with SIGKILL and wait until it is back."""
        self.wait_healthy(name, instead_of=self.kill(name))

    def wipe_kafka(self) -> None:
        """The broker loses all its data: killed, and started again on nothing."""
        log = self.folder.kafka / "log"
        gone = self.folder.kafka / f"gone-{time.monotonic_ns()}"
        log.rename(gone)  # before the kill: the supervisor is fast
        victim = self.kill("kafka")
        shutil.rmtree(gone)
        self.wait_healthy("kafka", instead_of=victim)

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """A child that is alive and does nothing meanwhile."""
        pid = self.process(name).pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def tail(self, name: str, lines: int = 30) -> str:
        """The end of a child's log."""
        return "\n".join(self.folder.log(name).read_text(errors="replace").splitlines()[-lines:])

    def allow_everything(self, team: str, *, classes: Sequence[str] = ("urgent", "high"), **limits: Any) -> None:
        """Set a team up with all allowances: once any team is, the others have none.

        `classes` are those of the policy in force that need one.
        """
        allowances = dict.fromkeys((*classes, "not_preemptible"), 1000)
        self.client.set_team(team, TeamBody(allowances=allowances, **limits))


async def _fetch(dsn: str, query: str, arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [dict(row) for row in await connection.fetch(query, *arguments)]
    finally:
        await connection.close()


def _socket_folder(cluster: LiveCluster) -> str:
    """Where the database's socket is: as root it may lie in a folder that its own user can reach."""
    environ = Path(f"/proc/{cluster.process('scheduler').pid}/environ").read_bytes().decode()
    entries = dict(entry.partition("=")[::2] for entry in environ.split("\0") if entry)
    return entries["MAKEWAY_POSTGRES_DSN"].partition("host=")[2].partition("&")[0]


@contextmanager
def live_cluster(
    folder: Path,
    *,
    simulate: str,
    nodes: int = 1,
    settings: Mapping[str, str] | None = None,
    policy: str | None = None,
) -> Iterator[LiveCluster]:
    """A cluster in `folder`, stopped and removed afterwards. `settings` are MAKEWAY_ variables for its services.

    It begins with the policy of a file or a preset, else with the default one.
    """
    root, work = folder / "state", folder / "work"
    work.mkdir(parents=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKEWAY_")}
    environment = inherited | {"MAKEWAY_STATE": str(root)} | {f"MAKEWAY_{k}": v for k, v in (settings or {}).items()}
    up = [MAKEWAY, "up", "--simulate", simulate, "--nodes", str(nodes), "--output", "json"]
    up += [] if policy is None else ["--policy", policy]
    try:
        done = subprocess.run(up, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"makeway up failed: {done.stderr}\n{done.stdout}"
        context = json.loads((root / "context.json").read_text())
        with Client(context["url"], context["token"]) as client:
            cluster = LiveCluster(
                root=root, work=work, environment=environment, client=client, url=context["url"],
                token=context["token"],
            )  # fmt: skip
            wait_until(lambda: sum(node.gpus for node in client.nodes()) > 0, "the nodes have registered")
            yield cluster
    finally:
        down = [MAKEWAY, "down", "--wipe", "--grace", "1"]
        subprocess.run(down, env=environment, check=False, capture_output=True, timeout=90)
