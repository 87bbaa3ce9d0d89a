"""What starting a process on a node costs: CPU of a shim around `/bin/true`, start to end, with all its processes.

Runs are started one by one, since others share the machine. The last line on stdout is one JSON object. Goal:
`cpu_ms_p50` under 4.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

from makeway_executor.intent import Intent
from makeway_executor.run_folder import RunFolder
from makeway_executor.shim import SHIM_PATH, Spawner


def start_and_end(spawner: Spawner, root: Path, number: int) -> tuple[float, float]:
    """(milliseconds of CPU, of wall time) of one run."""
    intent = Intent(
        run_id=f"run{number}", key="0123456789abcdef", boot_id="boot", control_path=str(root / f"{number}.socket"),
        working_dir=str(root), command=("/bin/true",), env={"PATH": os.environ["PATH"]},
        log_head_bytes=64 * 1024 * 1024, log_tail_bytes=1024 * 1024,
    )  # fmt: skip
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    folder = RunFolder(root, intent.run_id)
    lock = folder.create()
    folder.write_intent(intent)
    pid, connection = spawner.spawn(folder, lock, intent.control_path)
    os.waitpid(pid, 0)
    connection.close()
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * spent, 1000 * (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="makeway-") as folder:
        spawner = Spawner(shim_path=SHIM_PATH)
        try:
            found = [start_and_end(spawner, Path(folder), number) for number in range(given.runs)]
        finally:
            spawner.close()
    cpu, wall = (sorted(times) for times in zip(*found, strict=True))
    print(
        json.dumps(
            {
                "runs": given.runs,
                "cpu_ms_p50": round(statistics.median(cpu), 2),
                "cpu_ms_p99": round(cpu[int(0.99 * (len(cpu) - 1))], 2),
                "wall_ms_p50": round(statistics.median(wall), 2),
            }
        )
    )


if __name__ == "__main__":
    main()
