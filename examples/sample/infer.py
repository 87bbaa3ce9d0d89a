"""Answers requests with a trained model for a few seconds: the work that cannot wait."""

import argparse
import time
from pathlib import Path

import digits
import numpy as np


def main() -> None:
    """Classifies batches of images until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=2.5)
    options = parser.parse_args()
    images, labels = digits.load()
    with np.load(options.model) as stored:
        weights = {name: stored[name] for name in stored.files}
    ends = time.monotonic() + options.seconds
    answered = right = 0
    while time.monotonic() < ends:
        at = answered % len(images)
        found = digits.scores(weights, images[at : at + 10]).argmax(axis=1)
        answered, right = answered + len(found), right + int((found == labels[at : at + 10]).sum())
        time.sleep(0.02)
    print(f"answered {answered} requests, {right / answered:.1%} right", flush=True)


if __name__ == "__main__":
    main()
