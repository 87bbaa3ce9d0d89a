"""Files of the cluster: state, logs, private files, Kafka's jars."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from makeway.local import kafka_libraries
from makeway.local.cluster import ClusterFolder
from makeway.local.errors import LibrariesUnavailable
from makeway.local.kafka_libraries import Jar, KafkaLock, cached_libraries, libraries_of_home, read_lock
from makeway.local.logs import cut_large_logs
from makeway.local.private_files import make_runtime_folder, write_private
from makeway.local.processes import ProcessIdentity
from makeway.local.state_file import (
    ChildState,
    ChildStatus,
    ClusterState,
    Phase,
    is_supervised,
    read_state,
    write_state,
)

STATE = ClusterState(
    phase=Phase.READY,
    supervisor=ProcessIdentity(pid=12, start_ticks=34),
    boot_id="a boot",
    started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    url="http://127.0.0.1:1",
    runtime_folder=Path("/run/x"),
    children={
        "kafka": ChildStatus(name="kafka", state=ChildState.HEALTHY, process=ProcessIdentity(pid=5, start_ticks=6)),
        "admission": ChildStatus(name="admission", state=ChildState.BACKING_OFF, restarts=3, reason="exit code 1"),
    },
)


def test_the_state_reads_back_as_written(tmp_path: Path) -> None:
    folder = ClusterFolder(root=tmp_path)
    write_state(folder, STATE)
    assert read_state(folder) == STATE
    assert replace(STATE, reason="other") != read_state(folder)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"phase": "no such"}'])
def test_a_state_that_cannot_be_used_is_no_state(tmp_path: Path, content: str) -> None:
    folder = ClusterFolder(root=tmp_path)
    folder.state_file.write_text(content)
    assert read_state(folder) is None
    assert not is_supervised(folder)


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_sockets_go_where_their_paths_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.delenv("TMPDIR", raising=False)
    folder = make_runtime_folder()
    try:
        assert deep not in folder.parents
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        folder.rmdir()


def test_a_log_over_its_limit_is_cut_and_its_writer_goes_on(tmp_path: Path) -> None:
    small, large = tmp_path / "small.log", tmp_path / "large.log"
    small.write_text("few")
    with large.open("a") as writer:
        writer.write("many words")
        writer.flush()
        assert cut_large_logs(tmp_path, limit_bytes=5) == [large]
        writer.write("more")
    assert large.read_text() == "more"
    assert (tmp_path / "large.log.1").read_text() == "many words"
    assert small.read_text() == "few"


def test_the_lock_names_every_jar_once_with_a_checksum() -> None:
    lock = read_lock()
    assert lock.version.startswith("4.")
    assert len({jar.file_name for jar in lock.jars}) == len(lock.jars) > 40
    assert all(len(jar.sha256) == 64 for jar in lock.jars)
    versions = {jar.artifact: jar.version for jar in lock.jars}
    assert versions["kafka-clients"] == versions["kafka_2.13"] == lock.version


def test_a_jar_that_differs_from_the_lock_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = KafkaLock(version="4.0", jars=(Jar(group="g", artifact="a", version="1", sha256="0" * 64),), digest="d" * 64)
    monkeypatch.setattr(kafka_libraries, "read_lock", lambda: lock)
    monkeypatch.setattr(
        kafka_libraries, "_fetch_one", lambda context, jar, folder: (folder / jar.file_name).write_text("evil")
    )
    with pytest.raises(LibrariesUnavailable, match=r"a-1\.jar"):
        cached_libraries(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["kafka-4.0-dddddddddddd.lock"]


def test_a_folder_that_is_not_kafka_4_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LibrariesUnavailable, match="not Kafka 4"):
        libraries_of_home(tmp_path)
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs/kafka_2.13-4.3.1.jar").touch()
    assert libraries_of_home(tmp_path) == tmp_path / "libs"


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), "REQUESTS_CA_BUNDLE"),
        (OSError("Failed to establish a new connection"), "HTTPS_PROXY"),
        (RuntimeError("not found in any repository"), "--kafka-home"),
    ],
)
def test_a_fetch_that_fails_names_what_can_be_set(tmp_path: Path, error: Exception, advice: str) -> None:
    class Context:
        def project(self, group: str, artifact: str) -> "Context":
            return self

        def at_version(self, version: str) -> "Context":
            return self

        def artifact(self) -> None:
            raise error

    jar = Jar(group="g", artifact="a", version="1", sha256="0" * 64)
    with pytest.raises(LibrariesUnavailable) as caught:
        kafka_libraries._fetch_one(Context(), jar, tmp_path)  # type: ignore[arg-type]
    assert advice in str(caught.value)
    assert "--kafka-home" in str(caught.value)
    for variable in {"REQUESTS_CA_BUNDLE", "HTTPS_PROXY"} - {advice}:
        assert variable not in str(caught.value)
