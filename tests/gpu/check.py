"""``make test-gpu``: what only a machine with an NVIDIA card can show, in a few minutes.

1. NVML: every card is found with its memory, and its readings are plausible
2. a cluster without ``--simulate`` registers the real cards
3. a CUDA process of a job is seen on its card while it runs, and the card is proven empty after its end
4. a torch training is preempted by an urgent job, resumes from its checkpoint, and ends bit for bit as undisturbed

Needs the driver; 3 and 4 need torch for the Python named by ``--python`` (default: the one that runs this).
Exit code 0: all passed; 1: a check failed; 3: no NVIDIA card here, so nothing was checked.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from makeway_runtime.devices.nvml import NvmlDevices
from makeway_runtime.devices.port import DriverMissing

FOLDER = Path(__file__).parent
MAKEWAY = Path(sys.executable).with_name("makeway")
SOURCE = FOLDER.parents[1] / "cli" / "src"  # makeway.job needs nothing but the standard library
LIMIT_SECONDS = 180.0


class Failed(Exception):
    """A check did not hold; the text says which and what was seen."""


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


def job(reference: str) -> dict[str, Any]:
    """A job as the API shows it."""
    shown: dict[str, Any] = json.loads(makeway("show", reference, "--output", "json"))
    return shown


async def check_nvml() -> int:
    """The cards by NVML. Returns how many there are. Raises DriverMissing."""
    devices = await NvmlDevices.open()
    try:
        cards = await devices.inventory()
        hold(bool(cards), f"NVML finds {len(cards)} GPU(s): {', '.join(card.name for card in cards)}")
        hold(all(card.vram_mib > 1024 for card in cards), "each has more than 1 GiB of memory")
        samples = await devices.samples()
        hold(len(samples) == len(cards), "each has readings")
        known = [each for each in samples if each.vram_used_mib is not None]
        hold(all(0 <= (each.vram_used_mib or 0) <= (each.vram_total_mib or 0) for each in known), "used <= total")
    finally:
        await devices.close()
    return len(cards)


async def processes_on(gpu_id: str) -> set[int]:
    """The processes that NVML sees on a card."""
    devices = await NvmlDevices.open()
    try:
        return {process.pid for process in await devices.processes(gpu_id)}
    finally:
        await devices.close()


def check_process(python: str) -> None:
    """A CUDA process is seen on its card, and the card is proven empty after it."""
    code = "import torch,time; x=torch.ones(1<<20,device='cuda'); print('on', flush=True); time.sleep(600)"
    held = makeway("submit", "--name", "holder", "--", python, "-c", code).strip()
    until(lambda: "on" in makeway("logs", held), "a CUDA process runs")
    card = job(held)["runs"][-1]["gpus"][0]
    hold(bool(asyncio.run(processes_on(card))), "NVML sees it on its card")
    makeway("cancel", held)
    until(lambda: job(held)["state"] == "CANCELLED", "it is cancelled")
    until(lambda: not asyncio.run(processes_on(card)), "its card is empty")


def check_training(python: str, folder: Path, gpus: int) -> None:
    """A preempted training ends bit for bit as an undisturbed one."""
    train = str(FOLDER / "train.py")
    env = ("--env", "CUBLAS_WORKSPACE_CONFIG=:4096:8", "--env", f"PYTHONPATH={SOURCE}")
    calm = makeway("submit", "--name", "calm", *env, "--", python, train, str(folder / "calm")).strip()
    until(lambda: job(calm)["state"] == "SUCCEEDED", "an undisturbed torch training ends")
    pushed = makeway("submit", "--gpus", str(gpus), *env, "--", python, train, str(folder / "pushed")).strip()
    until(lambda: (job(pushed)["last_ack_step"] or 0) >= 40, "a second one has saved step 40")
    urgent = makeway("submit", "--class", "urgent", "--", python, "-c", "import torch; torch.ones(9).cuda()").strip()
    until(lambda: job(urgent)["state"] == "SUCCEEDED", "an urgent CUDA job took its place and ended")
    until(lambda: job(pushed)["state"] == "SUCCEEDED", "the training resumed and ended")
    shown = job(pushed)
    hold(shown["preemptions"] == 1 and len(shown["runs"]) == 2, "it was preempted once")
    hold((folder / "calm").read_bytes() == (folder / "pushed").read_bytes(), "both models are the same, bit for bit")


def main() -> int:
    """Run every check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    wanted = parser.parse_args()
    try:
        gpus = asyncio.run(check_nvml())
    except DriverMissing as error:
        print(f"no NVIDIA card here ({error}): nothing was checked", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="makeway-gpu-") as name:
        os.environ["MAKEWAY_STATE"] = f"{name}/state"
        try:
            makeway("up")
            nodes = json.loads(makeway("node", "list", "--output", "json"))
            hold(nodes[0]["gpus"] == gpus and not nodes[0]["simulated"], "the node registers the real cards")
            check_process(wanted.python)
            check_training(wanted.python, Path(name), gpus)
        except (Failed, subprocess.CalledProcessError) as error:
            print(f"FAILED {error}\n{getattr(error, 'stderr', '') or ''}", file=sys.stderr)
            return 1
        finally:
            subprocess.run([str(MAKEWAY), "down", "--wipe", "--grace", "2"], check=False)
    print("all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
