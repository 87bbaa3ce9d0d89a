"""The services of a local cluster: which processes, with which environment.

What a service is told, all by environment variables with the prefix MAKEWAY_:

- every one: STATE_DIR (its own folder), RUNTIME_DIR (short, for sockets), POOL, HEALTH_PORT=0 with HEALTH_FILE (it
  writes the port it took; `GET /healthz` on loopback answers 200 or 503), KAFKA_BOOTSTRAP, KAFKA_USERNAME,
  KAFKA_PASSWORD;
- those with a database: POSTGRES_DSN with their own role;
- admission: HTTP_PORT, BOOTSTRAP_TOKEN (an admin's), NODE_TOKENS (JSON: node name to token);
- executor and sampler: NODE_NAME and NODE_ID, SIMULATE where the cards are simulated; the executor also NODE_TOKEN and
  ADMISSION_URL. Those of one node share a state and a runtime folder.

Signals: SIGTERM means "end soon, leave what must go on": an executor leaves its runs alive. SIGUSR1 to an executor
means "notice all runs, kill them when the grace is over, write their ends as stopped by us, then exit with 0"; the
grace stands in RUNTIME_DIR/drain.json, `{"grace_seconds": 10.0}`.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from makeway.local.cluster import ClusterFolder, ClusterSecrets, ClusterSettings
from makeway.local.private_files import private_folder

__all__ = ["DRAIN_FILE", "LOCAL_POOL", "Addresses", "ServiceSpec", "StopOrder", "role_dsn", "service_specs"]

DRAIN_FILE = "drain.json"
LOCAL_POOL = "default"
"""The one pool of a local cluster."""
_OURS_TO_SET = ("MAKEWAY_URL", "MAKEWAY_TOKEN", "MAKEWAY_STATE")


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Where the servers of this run are; the DSN is the superuser's, or the one named with --postgres.

    `inherited` is the environment of whoever called `up`: paths of drivers, proxies, and MAKEWAY_ settings of the
    user's own.
    """

    postgres_dsn: str = field(repr=False)
    kafka_bootstrap: str
    kafka_username: str | None
    kafka_password: str | None = field(repr=False)
    runtime_folder: Path
    inherited: Mapping[str, str] = field(repr=False)


class StopOrder(IntEnum):
    """Who stops when: no new work, no new decisions, the jobs, those who watch, the servers."""

    ADMISSION = 1
    SCHEDULER = 2
    EXECUTOR = 3
    TELEMETRY = 4
    KAFKA = 5
    POSTGRES = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSpec:
    """One service process; `order` is when it stops."""

    name: str
    order: StopOrder
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    log_path: Path
    health_file: Path


def role_dsn(dsn: str, role: str, password: str) -> str:
    """The same server and database, with a role's login."""
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(role, safe='')}:{quote(password, safe='')}@{host}"))


def service_specs(
    folder: ClusterFolder, settings: ClusterSettings, secrets: ClusterSecrets, addresses: Addresses
) -> list[ServiceSpec]:
    """All service processes of the cluster."""
    build = _Builder(folder=folder, settings=settings, secrets=secrets, addresses=addresses)
    admission = {
        "HTTP_PORT": str(settings.http_port),
        "BOOTSTRAP_TOKEN": secrets.admin_token,
        "NODE_TOKENS": json.dumps(secrets.node_tokens),
    }
    specs = [
        build.with_database("admission", StopOrder.ADMISSION, ("makeway_admission",), admission),
        build.with_database("scheduler", StopOrder.SCHEDULER, ("makeway_scheduler",), {}),
        build.with_database("telemetry", StopOrder.TELEMETRY, ("makeway_telemetry", "collector"), {}),
    ]
    # A job that comes back on another node finds what it has saved: all nodes are on this host.
    checkpoints = addresses.inherited.get("MAKEWAY_CHECKPOINT_ROOT") or str(private_folder(folder.checkpoints))
    for node in settings.node_names:
        of_executor = {
            "NODE_TOKEN": secrets.node_tokens[node],
            "ADMISSION_URL": settings.url,
            "CHECKPOINT_ROOT": checkpoints,
        }
        specs.append(build.on_node("executor", StopOrder.EXECUTOR, ("makeway_executor",), node, of_executor))
        specs.append(build.on_node("sampler", StopOrder.TELEMETRY, ("makeway_telemetry", "sampler"), node, {}))
    return specs


@dataclass(frozen=True, kw_only=True, slots=True)
class _Builder:
    folder: ClusterFolder
    settings: ClusterSettings
    secrets: ClusterSecrets
    addresses: Addresses

    def with_database(
        self, name: str, order: StopOrder, module: tuple[str, ...], more: Mapping[str, str]
    ) -> ServiceSpec:
        role = f"makeway_{name}"
        dsn = role_dsn(self.addresses.postgres_dsn, role, self.secrets.role_passwords[role])
        state_folder = private_folder(self.folder.root / name)
        return self._service(name, order, module, {"POSTGRES_DSN": dsn, "STATE_DIR": str(state_folder), **more})

    def on_node(
        self, name: str, order: StopOrder, module: tuple[str, ...], node: str, more: Mapping[str, str]
    ) -> ServiceSpec:
        here = {
            "NODE_NAME": node,
            "NODE_ID": node,
            "STATE_DIR": str(self.folder.node(node)),
            "RUNTIME_DIR": str(private_folder(self.addresses.runtime_folder / node)),
            **more,
        }
        if self.settings.simulate is not None:
            here["SIMULATE"] = self.settings.simulate
        return self._service(f"{name}-{node}", order, module, here)

    def _service(self, name: str, order: StopOrder, module: tuple[str, ...], more: Mapping[str, str]) -> ServiceSpec:
        runtime = self.addresses.runtime_folder
        health_file = runtime / f"{name}.health"
        ours = {
            "POOL": LOCAL_POOL,
            "RUNTIME_DIR": str(runtime),
            "HEALTH_PORT": "0",
            "HEALTH_FILE": str(health_file),
            "KAFKA_BOOTSTRAP": self.addresses.kafka_bootstrap,
            **more,
        }
        if self.addresses.kafka_username and self.addresses.kafka_password:
            ours |= {
                "KAFKA_USERNAME": self.addresses.kafka_username,
                "KAFKA_PASSWORD": self.addresses.kafka_password,
            }
        inherited = {key: value for key, value in self.addresses.inherited.items() if key not in _OURS_TO_SET}
        return ServiceSpec(
            name=name,
            order=order,
            command=(sys.executable, "-m", *module),
            environment=inherited | {f"MAKEWAY_{key}": value for key, value in ours.items()},
            log_path=self.folder.log(name),
            health_file=health_file,
        )
