"""`up`, `down` and what lies between, with the real servers and stand-ins for the services."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import servers
from makeway.local.cluster import ClusterFolder, Wishes
from makeway.local.errors import LocalClusterError
from makeway.local.leftovers import processes_of
from makeway.local.lifecycle import Start, Up, bring_up, look, take_down
from makeway.local.postgres import EmbeddedPostgres
from makeway.local.processes import ProcessIdentity, identify, is_alive
from makeway.local.servers import ServerProcess
from makeway.local.state_file import ChildState, ClusterState, Phase

SUPERVISOR = Path(__file__).with_name("stand_in_supervisor.py")
SIMULATED = Wishes(simulate="2xA100-80GB")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a cluster, with a space"
    yield folder
    take_down(folder, grace_seconds=0.5, wipe=True)


def up(root: Path, wishes: Wishes = SIMULATED, **behaviour: object) -> Up:
    environment = {**os.environ, "BEHAVIOUR": json.dumps(behaviour), "MAKEWAY_TOKEN": "not for services"}
    start = Start(command=(sys.executable, str(SUPERVISOR)), environment=environment, timeout_seconds=60)
    return bring_up(root, wishes, start=start)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def process_of(state: ClusterState, name: str) -> ProcessIdentity:
    process = state.children[name].process
    assert process is not None
    return process


def seen(root: Path) -> ClusterState:
    state = look(root)
    assert state is not None
    return state


def everything(state: ClusterState) -> list[ProcessIdentity]:
    children = [child.process for child in state.children.values() if child.process is not None]
    return [state.supervisor, *children, *processes_of(state.runtime_folder, Path("/nowhere"))]


def none_alive(processes: list[ProcessIdentity]) -> bool:
    return not any(is_alive(process) for process in processes)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Up]]:
    """One cluster for the tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("clusters") / "running"
    yield folder, up(folder)
    take_down(folder, grace_seconds=0.5, wipe=True)


def test_up_says_what_runs_and_a_second_up_finds_it(running: tuple[Path, Up]) -> None:
    root, first = running
    second = up(root)
    assert not first.already
    assert second.already
    assert second.state.supervisor == first.state.supervisor
    assert set(first.state.children) == {
        "postgres", "kafka", "admission", "scheduler", "telemetry", "executor-node-1", "sampler-node-1"
    }  # fmt: skip
    assert "SIMULATED 2xA100-80GB (as asked)" in first.gpus
    assert "SIMULATED 2xA100-80GB (as it was set up)" in second.gpus
    context = ClusterFolder(root=root).context_file
    assert json.loads(context.read_text())["url"] == first.state.url
    for path in (context, ClusterFolder(root=root).secrets_file):
        assert path.stat().st_mode & 0o077 == 0
    assert root.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["admission", "executor-node-1", "postgres", "kafka"])
def test_what_crashes_is_started_again_and_says_so(running: tuple[Path, Up], name: str) -> None:
    root, _ = running
    state = seen(root)
    former = process_of(state, name)
    os.kill(former.pid, signal.SIGKILL)

    def is_back() -> bool:
        child = seen(root).children[name]
        return child.state is ChildState.HEALTHY and child.process not in (None, former)

    wait_until(is_back, f"{name} is back")
    child = seen(root).children[name]
    assert child.restarts == 1
    assert "SIGKILL" in child.reason
    wait_until(lambda: seen(root).phase is Phase.READY, "ready again")


def test_down_leaves_no_process_and_keeps_the_data_and_up_goes_on(root: Path) -> None:
    before = up(root, job=True)
    job = int((root / "nodes/node-1/job.pid").read_text())
    processes = everything(before.state)
    assert take_down(root, grace_seconds=7.5)
    assert none_alive(processes)
    assert identify(job) is None
    assert not before.state.runtime_folder.exists()
    assert json.loads((root / "nodes/node-1/drained").read_text()) == {"grace_seconds": 7.5}
    assert look(root) is None
    assert not take_down(root, grace_seconds=1)
    after = up(root, Wishes())
    assert after.state.url == before.state.url
    assert after.settings == before.settings
    assert "(as it was set up)" in after.gpus


def test_up_says_where_it_simulates_because_it_has_found_no_gpu(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.local.lifecycle.found_gpus", list)
    assert "SIMULATED 4xA100-80GB (none was found on this host)" in up(root, Wishes()).gpus


def test_down_with_wipe_removes_the_folder_but_no_file_of_another(root: Path) -> None:
    up(root)
    (root / "mine.txt").write_text("not makeway's")
    take_down(root, grace_seconds=1, wipe=True)
    assert [entry.name for entry in root.iterdir()] == ["mine.txt"]
    (root / "mine.txt").unlink()
    assert not take_down(root, grace_seconds=1, wipe=True)


def test_a_service_that_fails_once_at_its_start_is_tried_again(root: Path, tmp_path: Path) -> None:
    state = up(root, exit_once=str(tmp_path / "marker")).state
    assert sum(child.restarts for child in state.children.values()) >= 1
    assert state.phase is Phase.READY


def test_up_recovers_from_a_power_cut(root: Path) -> None:
    before = up(root)
    for process in everything(before.state):
        if is_alive(process):
            os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: none_alive(everything(before.state)), "all are dead")
    wait_until(lambda: look(root) is None, "the lock is free")
    after = up(root)
    assert not after.already
    assert after.state.phase is Phase.READY
    assert after.state.url == before.state.url


def test_a_killed_supervisor_takes_its_services_along_but_not_the_jobs(root: Path) -> None:
    before = up(root, job=True)
    job = identify(int((root / "nodes/node-1/job.pid").read_text()))
    assert job is not None
    children = [child.process for child in before.state.children.values() if child.process is not None]
    os.kill(before.state.supervisor.pid, signal.SIGKILL)
    wait_until(lambda: none_alive([before.state.supervisor, *children]), "the kernel told the children")
    assert is_alive(job)
    after = up(root)
    assert after.state.runtime_folder == before.state.runtime_folder
    assert is_alive(job)


def test_down_after_a_killed_supervisor_ends_the_jobs(root: Path) -> None:
    before = up(root, job=True)
    job = identify(int((root / "nodes/node-1/job.pid").read_text()))
    assert job is not None
    os.kill(before.state.supervisor.pid, signal.SIGKILL)
    assert take_down(root, grace_seconds=1)
    assert not is_alive(job)
    assert none_alive(everything(before.state))


def test_two_clusters_run_side_by_side(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    try:
        first, second = up(root), up(other, Wishes(nodes=3, simulate="8xH100-80GB"))
        assert first.state.url != second.state.url
        assert first.state.runtime_folder != second.state.runtime_folder
        assert sum(name.startswith("executor-") for name in second.state.children) == 3
        take_down(other, grace_seconds=1)
        assert seen(root).phase is Phase.READY
    finally:
        take_down(other, grace_seconds=1, wipe=True)


def test_a_database_that_cannot_be_prepared_is_said_and_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_PROVISION", "false")
    with pytest.raises(LocalClusterError, match="preparation of the database"):
        up(root)
    assert look(root) is None


def test_servers_that_are_named_are_used_and_left_alone(
    root: Path, own_postgres: ServerProcess, kafka_server: servers.KafkaAddress
) -> None:
    assert isinstance(own_postgres.server, EmbeddedPostgres)
    dsn = own_postgres.server.dsn()
    kafka = f"{kafka_server.username}:{kafka_server.password}@{kafka_server.bootstrap}"
    state = up(root, Wishes(simulate="1xA100-80GB", postgres_dsn=dsn, kafka=kafka)).state
    assert not {"postgres", "kafka"} & set(state.children)
    environment = Path(f"/proc/{process_of(state, 'admission').pid}/environ").read_text()
    assert f"MAKEWAY_KAFKA_BOOTSTRAP={kafka_server.bootstrap}\0" in environment
    assert f"MAKEWAY_KAFKA_PASSWORD={kafka_server.password}\0" in environment
    assert "MAKEWAY_POSTGRES_DSN=postgresql://makeway_admission:" in environment
    take_down(root, grace_seconds=1)
    assert own_postgres.server.is_ready()


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "precious").touch()
    with pytest.raises(LocalClusterError, match="precious"):
        up(tmp_path)
    assert not take_down(tmp_path, grace_seconds=0, wipe=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_several_nodes_cannot_share_real_gpus(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.local.lifecycle.found_gpus", lambda: ["A card"])
    with pytest.raises(LocalClusterError, match="--simulate"):
        up(root, Wishes(nodes=2))
