"""What `make run` shows: four training jobs, an urgent one that cannot wait, and nothing lost.

It starts a local cluster with four simulated GPUs, trains on all four, submits an urgent inference job, tells what
happens, and checks that the interrupted training ends with the very model of an undisturbed one, bit for bit. Then it
stops and removes everything; KEEP=1 leaves it up. It exits with 1 if anything is not as promised.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from makeway.client import Client
from makeway.errors import MakewayError
from makeway_schemas.api import JobDetail, PreemptionView
from makeway_schemas.states import TERMINAL, JobState
from story import Story, table

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MAKEWAY = Path(sys.executable).with_name("makeway")
GPUS = "4xA100-80GB"
TRAININGS = {f"train-{seed}": seed for seed in (1, 2, 3, 4)}
URGENT = "infer-now"
# One thread in numpy's arithmetic: the order of a sum is then always the same, and so is its last bit.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
LIMIT_SECONDS = 120
KEEP = bool(os.environ.get("KEEP"))


class NotAsPromised(Exception):
    """Something that this page promises did not happen."""


def main() -> int:
    """Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    (ROOT / ".makeway").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=ROOT / ".makeway"))
    try:
        with _cluster(folder / "state"), _undisturbed(folder) as references:
            jobs, preemptions = _play(folder, references)
            _check(jobs, preemptions, _compare(folder, references))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        # What failed has said why itself.
        print(f"\n`{' '.join(map(str, error.cmd))}` failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    except (NotAsPromised, MakewayError) as error:
        print(f"\nNOT AS PROMISED: {error}\nKEEP=1 make run leaves everything there to look at", file=sys.stderr)
        return 1
    finally:
        if not KEEP:
            shutil.rmtree(folder, ignore_errors=True)
    _say_what_next(folder / "state")
    return 0


@contextmanager
def _cluster(state: Path) -> Iterator[None]:
    """A local cluster for as long as the block lasts, or for good with KEEP=1."""
    try:
        up = subprocess.run(
            [MAKEWAY, "up", "--state", state, "--simulate", GPUS, "--output", "json"],
            check=True,
            stdout=subprocess.PIPE,
        )
        _say_what_comes(json.loads(up.stdout))
        yield
    finally:
        if not KEEP and state.exists():
            # The cluster is stopped whole: an impatient Ctrl-C reaches neither us nor `down`.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            subprocess.run([MAKEWAY, "down", "--wipe", "--state", state], check=False, start_new_session=True)


@contextmanager
def _undisturbed(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The same trainings as plain processes that nobody interrupts, and without the pauses between steps."""
    references: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in TRAININGS:
            options = ["--step-seconds", "0", "--checkpoints", str(folder / "plain" / name)]
            command = _training(folder / "undisturbed", name, *options)
            # In a session of their own: Ctrl-C comes to us, and we end them.
            references[name] = subprocess.Popen(
                command, env=os.environ | ONE_THREAD, stdout=subprocess.DEVNULL, start_new_session=True
            )
        yield references
    finally:
        for process in references.values():
            process.kill()
            process.wait()


def _say_what_comes(up: dict[str, str]) -> None:
    print(f"cluster  {up['url']}, state in {up['state']}")
    print(f"GPUs     {GPUS}, SIMULATED; processes, signals, checkpoints, Kafka and PostgreSQL are real")
    print("to come  four trainings of class normal fill the GPUs; then an urgent job comes that cannot wait")
    print(flush=True)


def _training(models: Path, name: str, *options: str) -> list[str]:
    models.mkdir(parents=True, exist_ok=True)
    model = ["--seed", str(TRAININGS[name]), "--model", str(models / f"{name}.npz")]
    return [sys.executable, str(HERE / "train.py"), *model, *options]


def _play(folder: Path, references: dict[str, subprocess.Popen[bytes]]) -> tuple[list[JobDetail], list[PreemptionView]]:
    """Submits everything, tells the story, and returns the ended jobs with the records of the preemptions."""
    context = json.loads((folder / "state" / "context.json").read_text())
    with Client(context["url"], context["token"]) as client:
        _wait_for_gpus(client)
        story = Story()
        ids = [
            client.submit({"name": name, "command": _training(folder / "models", name), "env": ONE_THREAD}).job_id
            for name in TRAININGS
        ]
        _follow(client, story, ids, _all_have_acked)
        model = _undisturbed_model(folder, references, "train-1")
        infer = [sys.executable, str(HERE / "infer.py"), "--model", str(model)]
        ids.append(client.submit({"name": URGENT, "class": "urgent", "command": infer, "env": ONE_THREAD}).job_id)
        jobs = _follow(client, story, ids, lambda jobs: all(job.state in TERMINAL for job in jobs))
        return jobs, client.preemptions()


def _wait_for_gpus(client: Client) -> None:
    """`up` is done when all services are healthy; the node's first report comes a moment later."""
    limit = time.monotonic() + LIMIT_SECONDS
    while client.cluster().gpus < len(TRAININGS):
        if time.monotonic() > limit:
            raise NotAsPromised("the node has not registered")
        time.sleep(0.05)


def _all_have_acked(jobs: list[JobDetail]) -> bool:
    if any(job.state in TERMINAL for job in jobs):
        raise NotAsPromised("a training ended before the urgent job came")
    return all(job.state is JobState.RUNNING and job.last_ack_step is not None for job in jobs)


def _follow(client: Client, story: Story, ids: list[str], until: Callable[[list[JobDetail]], bool]) -> list[JobDetail]:
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        jobs = [client.job(job_id) for job_id in ids]
        story.tell(jobs, client.preemptions())
        if until(jobs):
            return jobs
        time.sleep(0.2)
    raise NotAsPromised(f"not over after {LIMIT_SECONDS} s")


def _undisturbed_model(folder: Path, references: dict[str, subprocess.Popen[bytes]], name: str) -> Path:
    if references[name].wait(LIMIT_SECONDS) != 0:
        raise NotAsPromised(f"the undisturbed training of {name} failed")
    return folder / "undisturbed" / f"{name}.npz"


def _digest(model: Path) -> str:
    with np.load(model) as weights:
        return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights.files))).hexdigest()


def _compare(folder: Path, references: dict[str, subprocess.Popen[bytes]]) -> dict[str, str]:
    """For each training what its model is, beside the undisturbed one."""
    verdicts = {}
    for name in TRAININGS:
        undisturbed = _digest(_undisturbed_model(folder, references, name))
        model = folder / "models" / f"{name}.npz"
        same = model.exists() and _digest(model) == undisturbed
        verdicts[name] = f"same as undisturbed, bit for bit ({undisturbed[:12]})" if same else "DIFFERENT"
    return verdicts


def _check(jobs: list[JobDetail], preemptions: list[PreemptionView], models: dict[str, str]) -> None:
    """Prints the table and raises NotAsPromised for what is wrong in it."""
    print()
    print("\n".join(table(jobs, models)))
    victims = [job for job in jobs if job.preemptions]
    urgent = jobs[-1]
    wrong = [f"{job.name} is {job.state}" for job in jobs if job.state is not JobState.SUCCEEDED]
    wrong += [f"the model of {name} is not the undisturbed one" for name, is_ in models.items() if is_ == "DIFFERENT"]
    if len(victims) != 1 or urgent.preemptions or len(preemptions) != 1:
        wrong.append(f"one preemption was to be; there were {len(preemptions)}, of {len(victims)} jobs")
    if not all(record.noticed_at and record.acked_step and record.resumed_step for record in preemptions):
        wrong.append("the record of the preemption has gaps")
    if any(record.acked_step != record.resumed_step for record in preemptions):
        wrong.append("the training did not resume at the step that it had acked")
    if wrong:
        raise NotAsPromised("; ".join(wrong))
    _say_cost(urgent, victims[0], preemptions[0])


def _say_cost(urgent: JobDetail, victim: JobDetail, record: PreemptionView) -> None:
    waited = (urgent.started_at - urgent.submitted_at).total_seconds() if urgent.started_at else 0.0
    print()
    print(f"{urgent.name} waited {waited:.3f} s. {victim.name} made way: it saved step {record.acked_step}, left, and")
    lost = "" if record.lost_gpu_seconds is None else f"; {record.lost_gpu_seconds:.1f} GPU-seconds were lost"
    print(f"went on from step {record.resumed_step}{lost}. No training step was done twice or left out.")


def _say_what_next(state: Path) -> None:
    makeway = MAKEWAY.relative_to(ROOT) if MAKEWAY.is_relative_to(ROOT) else MAKEWAY
    print()
    if KEEP:
        print("The cluster is up. To paste next:")
        print(f"  export MAKEWAY_STATE='{state}'")
        print(f"  {makeway} ps\n  {makeway} preemptions\n  {makeway} logs --run all train-1\n  {makeway} down --wipe")
        return
    print("Everything is stopped and removed. To paste next:")
    print(f"  {makeway} up --simulate {GPUS}")
    print(f"  {makeway} run -- python3 -c 'print(\"hello from a GPU\")'\n  {makeway} ps\n  {makeway} down")


if __name__ == "__main__":
    sys.exit(main())
