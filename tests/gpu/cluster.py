"""What the checks do with a cluster: commands, waiting, and a record of what held and how long each check took."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from makeway_runtime.devices.nvml import NvmlDevices

MAKEWAY = Path(sys.executable).with_name("makeway")
LIMIT_SECONDS = 90.0
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT", "EXPIRED")


class Failed(Exception):
    """A check did not hold; the text says which and what was seen."""


class Record:
    """The checks that ran: name, seconds, passed."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, bool]] = []

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """Time one check and say how it ended."""
        began = time.monotonic()
        print(f"----  {name}", flush=True)
        passed = False
        try:
            yield
            passed = True
        finally:
            self.rows.append((name, time.monotonic() - began, passed))

    def show(self) -> None:
        """One line a check."""
        print("\ncheck                                                    seconds")
        for name, seconds, passed in self.rows:
            print(f"{name:<54} {seconds:9.2f}  {'passed' if passed else 'FAILED'}", flush=True)


def hold(condition: bool, sentence: str) -> None:
    """Raise Failed unless the condition holds."""
    if not condition:
        raise Failed(sentence)
    print(f"ok    {sentence}", flush=True)


def until(ask: Callable[[], Any], sentence: str) -> Any:
    """Wait for a true answer."""
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        answer = ask()
        if answer:
            print(f"ok    {sentence}", flush=True)
            return answer
        time.sleep(0.2)
    raise Failed(f"within {LIMIT_SECONDS:.0f} s: {sentence}")


def makeway(*arguments: str) -> str:
    """Run the command; its output."""
    return subprocess.run([str(MAKEWAY), *arguments], check=True, capture_output=True, text=True).stdout


def situation() -> str:
    """What the cluster shows, for whoever reads a failure."""
    asked = (("ps",), ("gpu", "list"), ("preemptions",), ("doctor",))
    return "\n".join(
        subprocess.run(
            [str(MAKEWAY), *each], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ).stdout
        for each in asked
    )


def submit(*arguments: str) -> str:
    """A new job's id. Its environment is the clean one of every job, with the path to the driver where one is set."""
    driver = os.environ.get("LD_LIBRARY_PATH")
    more = ("--env", f"LD_LIBRARY_PATH={driver}") if driver else ()
    return makeway("submit", *more, *arguments).strip()


def job(reference: str) -> dict[str, Any]:
    """A job as the API shows it."""
    shown: dict[str, Any] = json.loads(makeway("show", reference, "--output", "json"))
    return shown


def ended_as(reference: str, state: str, sentence: str) -> dict[str, Any]:
    """Wait for a job's end; any other end than `state` fails at once, with the end of its log."""

    def ask() -> dict[str, Any] | None:
        shown = job(reference)
        if shown["state"] in ENDED and shown["state"] != state:
            raise Failed(f"{sentence}: it ended as {shown['state']}\n{makeway('logs', reference)[-2000:]}")
        return shown if shown["state"] == state else None

    shown: dict[str, Any] = until(ask, sentence)
    return shown


def said(reference: str, word: str, sentence: str) -> list[str]:
    """Wait until the job's log has a line that begins with `word`; the words of that line."""

    def ask() -> list[str] | None:
        shown = job(reference)
        lines = [line.split() for line in makeway("logs", reference).splitlines()]
        found = next((words for words in lines if words and words[0] == word), None)
        if found is None and shown["state"] in ENDED:
            raise Failed(f"{sentence}: it ended as {shown['state']}\n{makeway('logs', reference)[-2000:]}")
        return found

    words: list[str] = until(ask, sentence)
    return words


def gpu(gpu_id: str) -> dict[str, Any]:
    """One GPU as the API shows it."""
    shown: list[dict[str, Any]] = json.loads(makeway("gpu", "list", "--output", "json"))
    return next(each for each in shown if each["gpu_id"] == gpu_id)


def moment(text: str) -> float:
    """A time of the API in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


async def processes_on(gpu_id: str) -> dict[int, int | None]:
    """The processes that NVML sees on a card, with their memory in MiB."""
    devices = await NvmlDevices.open()
    try:
        return {process.pid: process.used_mib for process in await devices.processes(gpu_id)}
    finally:
        await devices.close()


def spread(values: list[float]) -> str:
    """Median, least and greatest."""
    return f"median {statistics.median(values):.1f}, least {min(values):.1f}, most {max(values):.1f} of {len(values)}"
