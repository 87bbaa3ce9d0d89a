"""``make test-gpu``: what only a machine with an NVIDIA card can show, in a few minutes.

1. NVML: every card is found with its memory, its readings are plausible, and what reading them costs
2. a cluster without ``--simulate`` registers the real cards, and shows their readings
3. a CUDA process of a job is seen on its card while it runs; one that ignores its notice is killed, and the card is
   proven empty before the next job starts on it
4. a process that is none of makeway's keeps its card from being given away, for as long as it lives
5. an urgent job takes a card from a CUDA process: how long until it runs
6. a torch training is preempted by an urgent job, resumes from its checkpoint, and ends bit for bit as undisturbed

Needs the driver; 6 needs torch for the Python named by ``--python`` (default: the one that runs this).
Exit code 0: all passed; 1: a check failed; 3: no NVIDIA card here, so nothing was checked.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cluster import (
    Failed,
    Record,
    ended_as,
    gpu,
    hold,
    job,
    makeway,
    moment,
    processes_on,
    said,
    situation,
    spread,
    submit,
    until,
)
from makeway_runtime.devices.nvml import NvmlDevices
from makeway_runtime.devices.port import DriverMissing, GpuInfo

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parents[1] / "cli" / "src"  # makeway.job needs nothing but the standard library
HOLD = str(FOLDER / "hold.py")
READINGS = 50
ROUNDS = 5
HELD_MIB = 1024  # what hold.py takes; its context takes some more


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What the checks work with: a Python with torch, a folder for results, and the cards; how often one repeats."""

    python: str
    folder: Path
    cards: tuple[GpuInfo, ...]
    rounds: int = ROUNDS
    torch: bool = True


async def check_nvml() -> tuple[GpuInfo, ...]:
    """The cards by NVML. Raises DriverMissing."""
    devices = await NvmlDevices.open()
    try:
        cards = await devices.inventory()
        hold(bool(cards), f"NVML finds {len(cards)} GPU(s): {', '.join(card.name for card in cards)}")
        print(f"      {cards}")
        hold(all(card.vram_mib > 1024 for card in cards), "each has more than 1 GiB of memory")
        samples = await devices.samples()
        print(f"      {samples}")
        hold(len(samples) == len(cards), "each has readings")
        known = [each for each in samples if each.vram_used_mib is not None]
        hold(all(0 <= (each.vram_used_mib or 0) <= (each.vram_total_mib or 0) for each in known), "used <= total")
        await cost("a reading of all cards", devices.samples)
        await cost("the process list of one card", lambda: devices.processes(cards[0].uuid))
        await cost("an inventory", devices.inventory)
    finally:
        await devices.close()
    return cards


async def cost(name: str, ask: Callable[[], Awaitable[object]]) -> None:
    """Print what a question to the driver costs."""
    walls, began_cpu = [], time.process_time()
    for _ in range(READINGS):
        began = time.perf_counter()
        await ask()
        walls.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() - began_cpu) * 1000 / READINGS
    print(f"info  {name}: ms {spread(walls)}; {cpu_ms:.2f} ms of CPU each", flush=True)


def check_cluster(cards: tuple[GpuInfo, ...]) -> None:
    """The node registers the real cards and their readings arrive."""
    print(makeway("up"))
    nodes = json.loads(makeway("node", "list", "--output", "json"))
    hold(nodes[0]["gpus"] == len(cards) and not nodes[0]["simulated"], "the node registers the real cards")
    shown = gpu(cards[0].uuid)
    hold(shown["type_name"] == cards[0].type_name, f"its type is {shown['type_name']}, {shown['vram_mib']} MiB")
    until(lambda: gpu(cards[0].uuid)["sampled_at"], "its readings arrive")
    hold(gpu(cards[0].uuid)["temperature_celsius"] is not None, "its temperature is known")
    print(makeway("doctor"))


def check_process(bench: Bench) -> None:
    """A CUDA process is seen on its card, and the card is proven empty after it."""
    held = submit("--name", "holder", "--preemption-grace", "1s", "--", bench.python, HOLD, "--stubborn")
    said(held, "ready", "a CUDA process runs")
    card = job(held)["runs"][-1]["gpus"][0]
    seen = asyncio.run(processes_on(card))
    hold(bool(seen), f"NVML sees it on its card: {seen} (pid: MiB)")
    until(lambda: (gpu(card)["vram_used_mib"] or 0) >= HELD_MIB, "the cluster shows its memory")
    makeway("cancel", held)
    shown = ended_as(held, "CANCELLED", "it is cancelled, though it ignores its notice")
    hold(shown["runs"][-1]["forced"], "it was killed when its grace was over")
    hold(not asyncio.run(processes_on(card)), "its card is empty by then")


def check_stranger(bench: Bench) -> None:
    """A card that somebody else uses is not given away."""
    card = bench.cards[0].uuid
    stranger = subprocess.Popen([bench.python, HOLD], stdout=subprocess.PIPE, text=True)
    try:
        hold(bool(stranger.stdout and stranger.stdout.readline().startswith("ready")), "a stranger uses the first card")
        until(lambda: str(stranger.pid) in gpu(card)["reason"], "its card is kept back, and the process named")
        waiting = submit("--gpus", str(len(bench.cards)), "--name", "waiting", "--", "true")
        hold(job(waiting)["state"] == "QUEUED", "a job for all cards waits")
    finally:
        stranger.kill()
        stranger.wait()
    ended_as(waiting, "SUCCEEDED", "the job runs once the stranger is gone")


def check_latency(bench: Bench) -> None:
    """How long an urgent job takes to run on a card that a CUDA process holds."""
    waits: dict[str, list[float]] = {}
    gpus = str(len(bench.cards))
    for _ in range(bench.rounds):
        low = submit("--class", "low", "--gpus", gpus, "--", bench.python, HOLD)
        said(low, "ready", "a CUDA process holds the card")
        urgent = submit("--class", "urgent", "--gpus", gpus, "--", bench.python, HOLD)
        ready = float(said(urgent, "ready", "the urgent one has it")[1])
        shown, victim = job(urgent), job(low)["runs"][0]
        hold(victim["end_cause"] == "preempted", "by preemption")
        submitted = moment(shown["submitted_at"])
        for name, until_then in {
            "submit to notice": moment(victim["noticed_at"]) - submitted,
            "notice to end of the CUDA process": moment(victim["ended_at"]) - moment(victim["noticed_at"]),
            "end of it to start of the urgent one": moment(shown["started_at"]) - moment(victim["ended_at"]),
            "submit to start of the urgent one": moment(shown["started_at"]) - submitted,
            "submit to its CUDA memory": ready - submitted,
        }.items():
            waits.setdefault(name, []).append(until_then * 1000)
        for reference in (low, urgent):
            makeway("cancel", reference)
            ended_as(reference, "CANCELLED", "it is cancelled")
    for name, values in waits.items():
        print(f"info  {name}: ms {spread(values)}", flush=True)
    hold(max(waits["submit to start of the urgent one"]) < 5000, "each urgent job started within its class's 5 s")


def check_training(bench: Bench) -> None:
    """A preempted training ends bit for bit as an undisturbed one."""
    python, folder, train = bench.python, bench.folder, str(FOLDER / "train.py")
    env = ("--env", "CUBLAS_WORKSPACE_CONFIG=:4096:8", "--env", f"PYTHONPATH={SOURCE}")
    calm = submit("--name", "calm", *env, "--", python, train, str(folder / "calm"))
    ended_as(calm, "SUCCEEDED", "an undisturbed torch training ends")
    pushed = submit("--gpus", str(len(bench.cards)), *env, "--", python, train, str(folder / "pushed"))
    until(lambda: (job(pushed)["last_ack_step"] or 0) >= 40, "a second one has saved step 40")
    urgent = submit("--class", "urgent", "--", python, "-c", "import torch; torch.ones(9).cuda()")
    ended_as(urgent, "SUCCEEDED", "an urgent CUDA job took its place and ended")
    shown = ended_as(pushed, "SUCCEEDED", "the training resumed and ended")
    hold(shown["preemptions"] == 1 and len(shown["runs"]) == 2, "it was preempted once")
    first, second = shown["runs"]
    hold(
        second["resumed_step"] == first["ack_step"],
        f"its last save was at step {first['ack_step']}, and it resumed from there",
    )
    hold((folder / "calm").read_bytes() == (folder / "pushed").read_bytes(), "both models are the same, bit for bit")


def run(record: Record, wanted: argparse.Namespace, cards: tuple[GpuInfo, ...]) -> None:
    """Every check on a cluster of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="makeway-gpu-") as name:
        os.environ["MAKEWAY_STATE"] = f"{name}/state"
        bench = Bench(
            python=wanted.python, folder=Path(name), cards=cards, rounds=wanted.rounds, torch=not wanted.without_torch
        )
        try:
            with record.check("2 a cluster on real cards"):
                check_cluster(cards)
            with record.check("3 a CUDA process, its end, and the proof of empty"):
                check_process(bench)
            with record.check("4 a stranger on a card"):
                check_stranger(bench)
            with record.check(f"5 an urgent job, {bench.rounds} times"):
                check_latency(bench)
            if bench.torch:
                with record.check("6 a torch training, preempted and resumed"):
                    check_training(bench)
        except (Failed, subprocess.CalledProcessError):
            print(situation(), file=sys.stderr)
            raise
        finally:
            if wanted.logs is not None:
                shutil.copytree(Path(name) / "state" / "logs", wanted.logs, dirs_exist_ok=True)
            makeway("down", "--wipe", "--grace", "2")


def main() -> int:
    """Run every check and show what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--logs", type=Path, help="where the cluster's logs are copied to")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often an urgent job is timed")
    parser.add_argument("--without-torch", action="store_true", help="leave the last check out")
    wanted = parser.parse_args()
    record = Record()
    try:
        with record.check("1 NVML"):
            cards = asyncio.run(check_nvml())
        run(record, wanted, cards)
    except DriverMissing as error:
        print(f"no NVIDIA card here ({error}): nothing was checked", file=sys.stderr)
        return 3
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"FAILED {error}\n{getattr(error, 'stderr', '') or ''}", file=sys.stderr)
        record.show()
        return 1
    record.show()
    print("all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
