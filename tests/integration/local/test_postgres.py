"""The embedded PostgreSQL: private, durable, and gone when stopped."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from makeway.local import postgres_user
from makeway.local.postgres import EmbeddedPostgres, PostgresSettings
from makeway.local.private_files import make_runtime_folder
from makeway.local.processes import processes_in
from makeway.local.servers import ServerProcess

GUESS = "guess"
AWKWARD = "with / @ and 'quotes'"


@pytest.fixture
def sockets() -> Iterator[Path]:
    folder = make_runtime_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server(tmp_path: Path, sockets: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(a_server(tmp_path / "with a space", sockets))
    yield process
    process.stop()
    process.server.wipe()


def a_server(folder: Path, sockets: Path) -> EmbeddedPostgres:
    folder.mkdir()
    return EmbeddedPostgres(
        PostgresSettings(
            data_folder=folder / "data",
            socket_folder=sockets,
            log_path=folder / "postgres.log",
            password=AWKWARD,
        )
    )


def dsn(process: ServerProcess) -> str:
    assert isinstance(process.server, EmbeddedPostgres)
    return process.server.dsn()


async def count_rows(process: ServerProcess) -> int:
    connection = await asyncpg.connect(dsn(process))
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (at timestamptz DEFAULT now())")
        await connection.execute("INSERT INTO kept DEFAULT VALUES")
        return int(await connection.fetchval("SELECT count(*) FROM kept"))
    finally:
        await connection.close()


async def test_data_survive_a_restart_and_a_power_cut(server: ServerProcess) -> None:
    server.start()
    assert await count_rows(server) == 1
    server.restart()
    assert await count_rows(server) == 2
    server.kill()
    server.start()
    assert await count_rows(server) == 3


async def test_a_pid_file_that_names_a_stranger_does_not_stop_the_start(server: ServerProcess) -> None:
    server.start()
    server.kill()
    assert isinstance(server.server, EmbeddedPostgres)
    pid_file = server.server.data_folder / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        server.start()
        assert await count_rows(server) == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_server_left_behind_is_replaced_by_the_next_start(server: ServerProcess) -> None:
    server.start()
    left_behind = server.pid
    another = ServerProcess(server.server)
    another.start()
    try:
        assert another.pid != left_behind
        assert await count_rows(another) == 1
    finally:
        another.stop()


async def test_a_half_made_data_folder_is_made_again(server: ServerProcess) -> None:
    server.server.prepare()
    assert isinstance(server.server, EmbeddedPostgres)
    (server.server.data_folder / "global" / "pg_control").unlink()
    server.start()
    assert await count_rows(server) == 1


async def test_a_wrong_password_is_refused(server: ServerProcess) -> None:
    server.start()
    assert isinstance(server.server, EmbeddedPostgres)
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.server.dsn(password=GUESS))


async def test_it_listens_on_no_network_port(server: ServerProcess) -> None:
    server.start()
    connection = await asyncpg.connect(dsn(server))
    try:
        assert await connection.fetchval("SHOW listen_addresses") == ""
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


def test_a_stop_leaves_no_process_and_no_socket(server: ServerProcess, sockets: Path) -> None:
    server.start()
    server.stop()
    assert isinstance(server.server, EmbeddedPostgres)
    assert processes_in(server.server.data_folder, names=("postgres",)) == []
    assert list(sockets.iterdir()) == []


async def test_root_without_namespaces_runs_it_as_another_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sockets: Path
) -> None:
    if postgres_user.os.geteuid() != 0:
        pytest.skip("only root has this choice")
    really_works = postgres_user._works
    monkeypatch.setattr(postgres_user, "_works", lambda *prefix: prefix[0] != "unshare" and really_works(*prefix))
    server = a_server(tmp_path / "as another", sockets)
    process = ServerProcess(server)
    try:
        process.start()
        assert await count_rows(process) == 1
        assert Path(f"/proc/{process.pid}").stat().st_uid != 0
        assert process.server.launch().death_signal is signal.SIGINT
    finally:
        process.stop()
        server.wipe()
    assert not server.data_folder.parent.exists()
