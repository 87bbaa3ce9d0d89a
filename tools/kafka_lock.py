"""Write the lock of the embedded Kafka's jars: versions and checksums, no addresses.

Run it after raising a version below, read the diff, run the tests, commit both. Kafka and the logger are resolved
apart: in one call the logger's managed versions would win over Kafka's own.
"""

import hashlib
import tempfile
from pathlib import Path

from jgo.maven import MavenContext, PythonResolver

KAFKA = "org.apache.kafka:kafka_2.13:4.3.1"
LOGGER = "org.slf4j:slf4j-jdk14:1.7.36"
LOCK = Path(__file__).parent.parent / "cli/src/makeway/local/kafka.lock.toml"
SCOPES = {None, "compile", "runtime"}


def main() -> None:
    """Resolve, fetch, hash, write."""
    with tempfile.TemporaryDirectory(prefix="makeway-lock-") as folder:
        context = MavenContext(resolver=PythonResolver(), repo_cache=Path(folder), timeout=60)
        jars: dict[tuple[str, str], tuple[str, str]] = {}
        for root in (KAFKA, LOGGER):
            inputs, transitive = context.resolver.resolve([context.create_dependency(root)])
            for dependency in inputs + transitive:
                if dependency.scope not in SCOPES:
                    continue
                digest = hashlib.sha256(dependency.artifact.resolve().read_bytes()).hexdigest()
                key = (dependency.groupId, dependency.artifactId)
                known = jars.setdefault(key, (dependency.version, digest))
                if known != (dependency.version, digest):
                    raise SystemExit(f"{key} is wanted in two versions: {known[0]} and {dependency.version}")
    lines = ["# Written by tools/kafka_lock.py: the jars of the embedded Kafka.", f'kafka = "{KAFKA.split(":")[2]}"']
    for (group, artifact), (version, digest) in sorted(jars.items()):
        lines += [
            "",
            "[[jar]]",
            f'group = "{group}"',
            f'artifact = "{artifact}"',
            f'version = "{version}"',
            f'sha256 = "{digest}"',
        ]
    LOCK.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
