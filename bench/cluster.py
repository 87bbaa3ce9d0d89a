"""What the measurements share: a cluster of their own, a client, and the CPU seconds of each of its processes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

MAKEWAY = Path(sys.executable).with_name("makeway")


@dataclass(frozen=True)
class Cluster:
    """A running local cluster with a state folder of its own."""

    state: Path
    url: str
    token: str

    def client(self) -> httpx.Client:
        """A client with the admin's token."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=30)

    def processes(self) -> dict[str, list[psutil.Process]]:
        """The cluster's processes by the name of the child, shims and jobs left out; the supervisor too."""
        state = json.loads((self.state / "cluster.json").read_text())
        found: dict[str, list[psutil.Process]] = {"supervisor": [psutil.Process(state["supervisor"]["pid"])]}
        for name, child in state["children"].items():
            if child.get("process"):
                parent = psutil.Process(child["process"]["pid"])
                family = [parent, *(parent.children(recursive=True) if name in ("postgres", "kafka") else [])]
                found[name.partition("-")[0]] = found.get(name.partition("-")[0], []) + family
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds so far by service; a postgres backend that ended is counted in its parent."""
        totals: dict[str, float] = {}
        for name, family in self.processes().items():
            for process in family:
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                totals[name] = totals.get(name, 0.0) + times.user + times.system
                if name == "postgres":
                    totals[name] += times.children_user + times.children_system
        return totals


@contextmanager
def cluster(*, simulate: str, nodes: int = 1) -> Iterator[Cluster]:
    """Start a cluster in a temporary folder; stop and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="makeway-bench-") as folder:
        state = Path(folder) / "state"
        environment = {**os.environ, "MAKEWAY_STATE": str(state)}
        up = [str(MAKEWAY), "up", "--simulate", simulate, "--nodes", str(nodes), "--output", "json"]
        subprocess.run(up, env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            context: dict[str, Any] = json.loads((state / "context.json").read_text())
            yield Cluster(state=state, url=context["url"], token=context["token"])
        finally:
            down = [str(MAKEWAY), "down", "--wipe", "--grace", "1"]
            subprocess.run(down, env=environment, check=True, stderr=subprocess.DEVNULL)
