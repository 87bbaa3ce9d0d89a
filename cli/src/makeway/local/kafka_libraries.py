"""Kafka's jars: fetched once by jgo, checked against the committed lock, shared by every checkout of this user."""

import fcntl
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jgo.config import GlobalSettings
from jgo.maven import MavenContext, PythonResolver

from makeway.local.errors import LibrariesUnavailable
from makeway.local.private_files import private_folder

__all__ = ["Jar", "KafkaLock", "cached_libraries", "default_cache", "libraries_of_home", "read_lock"]

_FETCHES_AT_ONCE = 8
_REQUEST_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Jar:
    """One locked artifact; `sha256` in hex."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name that Maven gives the file."""
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaLock:
    """All jars of one Kafka version; `digest` tells one lock from another."""

    version: str
    jars: tuple[Jar, ...]
    digest: str


def read_lock() -> KafkaLock:
    """The lock that this release ships."""
    raw = files("makeway.local").joinpath("kafka.lock.toml").read_bytes()
    content = tomllib.loads(raw.decode())
    jars = tuple(Jar(**entry) for entry in content["jar"])
    return KafkaLock(version=content["kafka"], jars=jars, digest=hashlib.sha256(raw).hexdigest())


def default_cache() -> Path:
    """Where jars are kept between clusters: `$XDG_CACHE_HOME/makeway`, else `~/.cache/makeway`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "makeway"


def libraries_of_home(home: Path) -> Path:
    """The jars of an unpacked Kafka distribution, which must be version 4.

    Raises LibrariesUnavailable when it is not one.
    """
    libraries = home / "libs"
    if not any(libraries.glob("kafka_2.13-4.*.jar")):
        raise LibrariesUnavailable(f"{home} is not Kafka 4: there is no libs/kafka_2.13-4.*.jar in it")
    return libraries


def cached_libraries(cache: Path, *, report: Callable[[str], None] = lambda sentence: None) -> Path:
    """The folder with the locked jars, fetched if need be; every checksum is compared on every call.

    Two callers at once fetch once. `report` gets a sentence when something is fetched. Raises LibrariesUnavailable.
    """
    lock = read_lock()
    private_folder(cache)
    target = cache / f"kafka-{lock.version}-{lock.digest[:12]}"
    if target.is_dir() and not _broken_jars(target, lock):
        return target
    with _only_one(cache / f"{target.name}.lock"):
        if target.is_dir():  # another caller made it while we waited, or it is damaged
            if not _broken_jars(target, lock):
                return target
            shutil.rmtree(target)
        report(f"fetching Apache Kafka {lock.version} ({len(lock.jars)} jars, 44 MB, once)")
        _fetch(target, lock)
    return target


def _broken_jars(folder: Path, lock: KafkaLock) -> list[str]:
    """Names of jars that are missing or differ from the lock."""
    return [jar.file_name for jar in lock.jars if _sha256(folder / jar.file_name) != jar.sha256]


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(target: Path, lock: KafkaLock) -> None:
    """Fetch into a folder of its own, check, and rename it into place, so that a half-made folder is never seen."""
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as temporary:
        settings = GlobalSettings.load()  # names mirrors, where the user has configured some for jgo
        context = MavenContext(
            resolver=PythonResolver(),
            repo_cache=Path(temporary) / "repository",
            remote_repos=settings.repositories or None,
            timeout=_REQUEST_TIMEOUT_SECONDS,
        )
        made = Path(temporary) / "jars"
        made.mkdir()
        with ThreadPoolExecutor(_FETCHES_AT_ONCE) as pool:
            for _ in pool.map(lambda jar: _fetch_one(context, jar, made), lock.jars):
                pass
        broken = _broken_jars(made, lock)
        if broken:
            raise LibrariesUnavailable(f"fetched jars differ from the lock and are not used: {', '.join(broken)}")
        made.rename(target)


def _fetch_one(context: MavenContext, jar: Jar, folder: Path) -> None:
    component = context.project(jar.group, jar.artifact).at_version(jar.version)
    try:
        component.artifact().resolve().rename(folder / jar.file_name)
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors; jgo raises RuntimeError
        raise LibrariesUnavailable(
            f"cannot fetch {jar.file_name} from Maven: {error}. {_advice(error)}"
            "With an unpacked Kafka 4 at hand, name it with --kafka-home."
        ) from error


def _advice(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (
            "Where a proxy shows a certificate of its own, name the file with its authority in REQUESTS_CA_BUNDLE"
            " (SSL_CERT_FILE does not count here). "
        )
    if isinstance(error, OSError):
        return "Where only a proxy leads out of here, name it in HTTPS_PROXY. "
    return ""
