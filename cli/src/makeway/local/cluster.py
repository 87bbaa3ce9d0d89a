"""What a local cluster is: its folders, its settings and its secrets, and how they are kept between runs.

A cluster is one state folder:

    cluster.json   what runs now (written by the supervisor, read by `status`)
    context.json   URL and admin token, for the command
    settings.json  what `up` was asked for; asked once, kept until asked otherwise
    secrets.json   passwords and tokens, made once
    lock           held by the supervisor while it lives
    logs/          one file a process
    postgres/ kafka/ nodes/NAME/ admission/ checkpoints/   the data
"""

import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from makeway.local.errors import LocalClusterError
from makeway.local.private_files import private_folder, write_private

__all__ = ["DATABASE_ROLES", "GIVEN_NOTHING", "ClusterFolder", "ClusterSecrets", "ClusterSettings", "Wishes"]

DATABASE_ROLES = ("makeway_admission", "makeway_scheduler", "makeway_telemetry")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterFolder:
    """The paths of one cluster."""

    root: Path

    @property
    def state_file(self) -> Path:
        """What runs now."""
        return self.root / "cluster.json"

    @property
    def context_file(self) -> Path:
        """URL and admin token."""
        return self.root / "context.json"

    @property
    def settings_file(self) -> Path:
        """What `up` was asked for."""
        return self.root / "settings.json"

    @property
    def secrets_file(self) -> Path:
        """Passwords and tokens."""
        return self.root / "secrets.json"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor while it lives."""
        return self.root / "lock"

    @property
    def stop_file(self) -> Path:
        """How `down` wants the stop: `{"grace_seconds": 10}`."""
        return self.root / "stop.json"

    @property
    def postgres(self) -> Path:
        """PostgreSQL's data."""
        return self.root / "postgres"

    @property
    def kafka(self) -> Path:
        """Kafka's data."""
        return self.root / "kafka"

    @property
    def nodes(self) -> Path:
        """What the nodes keep."""
        return self.root / "nodes"

    @property
    def checkpoints(self) -> Path:
        """A folder a job, for its runs on all nodes."""
        return self.root / "checkpoints"

    def log(self, name: str) -> Path:
        """The log of one process."""
        return private_folder(self.root / "logs") / f"{name}.log"

    def node(self, name: str) -> Path:
        """What one node keeps: run folders, logs of jobs."""
        return private_folder(self.nodes / name)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSettings:
    """What a cluster is made of.

    `simulate` is a node's simulated cards (`4xA100-80GB`), None for the real ones. `postgres_dsn` and `kafka` name
    servers that are not ours; `kafka` is `host:port` or `user:password@host:port`. Ports are on loopback and kept
    between runs where they stay free.
    """

    nodes: int = 1
    node_prefix: str = "node"
    simulate: str | None = None
    postgres_dsn: str | None = None
    kafka: str | None = None
    libraries: str | None = None
    http_port: int = 0
    kafka_port: int = 0
    kafka_controller_port: int = 0

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes, by name."""
        return tuple(f"{self.node_prefix}-{number}" for number in range(1, self.nodes + 1))

    @property
    def url(self) -> str:
        """Where admission answers."""
        return f"http://127.0.0.1:{self.http_port}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What one `up` asks for; None leaves what the cluster had, or the default."""

    nodes: int | None = None
    node_prefix: str | None = None
    simulate: str | None = None
    postgres_dsn: str | None = None
    kafka: str | None = None
    http_port: int | None = None

    def applied_to(self, settings: ClusterSettings) -> ClusterSettings:
        """The settings with the wishes in place."""
        return replace(settings, **{name: value for name, value in asdict(self).items() if value is not None})


CLUSTER_ENTRIES = frozenset(
    (
        *("cluster.json", "context.json", "settings.json", "secrets.json", "stop.json", "lock", "up.lock", "last_job"),
        *("logs", "postgres", "postgres.new", "kafka", "nodes", "checkpoints", "admission", "scheduler", "telemetry"),
    )
)
"""Everything that a cluster makes in its state folder: `down --wipe` removes these and nothing else."""

GIVEN_NOTHING = Wishes()


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSecrets:
    """Passwords and tokens, made once a cluster; none is ever printed."""

    postgres_password: str = field(repr=False)
    kafka_password: str = field(repr=False)
    admin_token: str = field(repr=False)
    role_passwords: dict[str, str] = field(repr=False)
    node_tokens: dict[str, str] = field(repr=False)


def load_settings(folder: ClusterFolder) -> ClusterSettings:
    """The settings of the last `up`, or the defaults."""
    content = _read(folder.settings_file)
    return ClusterSettings() if content is None else ClusterSettings(**content)


def save_settings(folder: ClusterFolder, settings: ClusterSettings) -> None:
    """Keep the settings for the next `up` and for the supervisor."""
    write_private(folder.settings_file, json.dumps(asdict(settings), indent=2) + "\n")


def ensure_secrets(folder: ClusterFolder, node_names: tuple[str, ...]) -> ClusterSecrets:
    """The cluster's secrets; what is missing is made and kept."""
    content = _read(folder.secrets_file) or {}
    roles, nodes = content.get("role_passwords", {}), content.get("node_tokens", {})
    made = ClusterSecrets(
        postgres_password=content.get("postgres_password") or _new_secret(),
        kafka_password=content.get("kafka_password") or _new_secret(),
        admin_token=content.get("admin_token") or _new_token(),
        role_passwords={role: roles.get(role) or _new_secret() for role in DATABASE_ROLES},
        node_tokens=nodes | {name: nodes.get(name) or _new_token() for name in node_names},
    )
    if asdict(made) != content:
        write_private(folder.secrets_file, json.dumps(asdict(made), indent=2) + "\n")
    return made


def _new_secret() -> str:
    """43 characters that need no quoting anywhere."""
    return secrets.token_urlsafe(32)


def _new_token() -> str:
    """A bearer token as the API knows them: `mw_<token id>_<secret>`."""
    return f"mw_{secrets.token_hex(6)}_{_new_secret()}"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LocalClusterError(f"{path} is damaged ({error}); `makeway down --wipe` starts over") from error
    if not isinstance(content, dict):
        raise LocalClusterError(f"{path} is damaged; `makeway down --wipe` starts over")
    return content
