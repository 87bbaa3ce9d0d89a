"""Trains the digits classifier, as a makeway job or as a plain program.

It saves a checkpoint every so many steps; when a stop is wanted it saves once more and leaves; started again it goes on
from there. The pace is slowed down so that there is something to watch.
"""

import argparse
import hashlib
import time
from pathlib import Path

import digits
import makeway.job
import numpy as np


def main() -> None:
    """Trains to the last step, or until a stop is wanted."""
    options = _options()
    images, labels = digits.load()
    training = digits.Training(options.seed, options.steps)
    with makeway.job.session(options.checkpoints) as job:
        saved = job.resume()
        if saved is not None:
            training.restore(saved.state)
        print(f"run {job.run}: {f'resumed at step {saved.step}' if saved else 'from the beginning'}", flush=True)
        while training.step < options.steps:
            if job.stop_requested():
                job.save(training.step, training.state(), epoch=training.epoch, fraction=_part(training), wait=True)
                print(f"stop wanted: saved step {training.step}, leaving", flush=True)
                return
            training.advance(images, labels)
            if training.step % options.save_every == 0:
                job.save(training.step, training.state(), epoch=training.epoch, fraction=_part(training))
                print(f"step {training.step} of {options.steps}, epoch {training.epoch}", flush=True)
            time.sleep(options.step_seconds)
        unseen = slice(digits.TRAINED_ON, None)
        _finish(options.model, training, digits.accuracy(training.weights, images[unseen], labels[unseen]))
        job.done()  # said here too: a notice that comes now must not have finished work done again


def _part(training: digits.Training) -> float:
    return training.step / training.schedule.steps


def _finish(model: Path, training: digits.Training, accuracy: float) -> None:
    temporary = model.with_suffix(".part.npz")
    np.savez(temporary, allow_pickle=False, **training.weights)
    temporary.replace(model)
    digest = hashlib.sha256(b"".join(training.weights[name].tobytes() for name in sorted(training.weights)))
    print(f"done: {accuracy:.1%} right on images never seen, sha256 of the weights {digest.hexdigest()}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--step-seconds", type=float, default=0.02, help="a pause after each step")
    parser.add_argument("--save-every", type=int, default=32, metavar="STEPS")
    parser.add_argument("--model", type=Path, default=Path("model.npz"), help="where the finished weights go")
    parser.add_argument("--checkpoints", type=Path, help="default: the job's folder, outside makeway ./checkpoints")
    return parser.parse_args()


if __name__ == "__main__":
    main()
