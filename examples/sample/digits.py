"""A small classifier of handwritten digits, and everything that its training consists of.

The data set ships inside scikit-learn; its file is read without importing scikit-learn, which would take a second.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
Weights = dict[str, Matrix]

PIXELS, HIDDEN, CLASSES = 64, 48, 10
TRAINED_ON = 1400
BATCH = 64


def load() -> tuple[Matrix, NDArray[np.int64]]:
    """1,797 images of 8 x 8 grey values from 0 to 1, one a row, and what each shows."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("scikit-learn is not installed: its package carries the data set")
    table = np.loadtxt(Path(package.submodule_search_locations[0]) / "datasets/data/digits.csv.gz", delimiter=",")
    return (table[:, :PIXELS] / 16).astype(np.float32), table[:, PIXELS].astype(np.int64)


def scores(weights: Weights, images: Matrix) -> Matrix:
    """One score a class for each image."""
    hidden = np.maximum(images @ weights["w1"] + weights["b1"], 0)
    raw: Matrix = hidden @ weights["w2"] + weights["b2"]
    return raw


def accuracy(weights: Weights, images: Matrix, labels: NDArray[np.int64]) -> float:
    """The part of the images that is told right, from 0 to 1."""
    return float((scores(weights, images).argmax(axis=1) == labels).mean())


def gradients(weights: Weights, images: Matrix, labels: NDArray[np.int64]) -> Weights:
    """Of the mean cross-entropy."""
    hidden = np.maximum(images @ weights["w1"] + weights["b1"], 0)
    raw = hidden @ weights["w2"] + weights["b2"]
    shares = np.exp(raw - raw.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    shares /= np.float32(len(labels))
    back = (shares @ weights["w2"].T) * (hidden > 0)
    return {"w1": images.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ shares, "b2": shares.sum(axis=0)}


@dataclass
class Schedule:
    """A learning rate that warms up and then falls along a cosine."""

    peak: float
    warm_up: int
    steps: int

    def rate(self, step: int) -> float:
        """The rate of a step, counted from 1."""
        if step <= self.warm_up:
            return self.peak * step / self.warm_up
        return float(self.peak * 0.5 * (1 + np.cos(np.pi * (step - self.warm_up) / (self.steps - self.warm_up))))


class Training:
    """All that a training run carries from step to step. ``state`` and ``restore`` leave nothing out: what is restored
    goes on bit for bit as if it had never been interrupted."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.weights: Weights = {
            "w1": self._normal(PIXELS, HIDDEN),
            "b1": np.zeros(HIDDEN, np.float32),
            "w2": self._normal(HIDDEN, CLASSES),
            "b2": np.zeros(CLASSES, np.float32),
        }
        self.mean = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.square = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.schedule = Schedule(peak=0.004, warm_up=steps // 10, steps=steps)
        self.step = 0
        self.epoch = 0
        self.order = self.random.permutation(TRAINED_ON)
        self.position = 0

    def _normal(self, rows: int, columns: int) -> Matrix:
        drawn: Matrix = (self.random.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)
        return drawn

    def advance(self, images: Matrix, labels: NDArray[np.int64]) -> None:
        """One step of Adam on the next batch of this epoch's order."""
        if self.position + BATCH > TRAINED_ON:
            self.epoch += 1
            self.order = self.random.permutation(TRAINED_ON)
            self.position = 0
        batch = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        self.step += 1
        rate = np.float32(self.schedule.rate(self.step))
        for name, gradient in gradients(self.weights, images[batch], labels[batch]).items():
            self.mean[name] = np.float32(0.9) * self.mean[name] + np.float32(0.1) * gradient
            self.square[name] = np.float32(0.999) * self.square[name] + np.float32(0.001) * gradient**2
            mean = self.mean[name] / np.float32(1 - 0.9**self.step)
            square = self.square[name] / np.float32(1 - 0.999**self.step)
            self.weights[name] = self.weights[name] - rate * mean / (np.sqrt(square) + np.float32(1e-8))

    def state(self) -> dict[str, Any]:
        """Weights, optimizer, place in the data, random state, schedule."""
        return {
            "weights": self.weights,
            "optimizer": {"mean": self.mean, "square": self.square},
            "step": self.step,
            "epoch": self.epoch,
            "order": self.order,
            "position": self.position,
            "random": self.random.bit_generator.state,
            "schedule": {"peak": self.schedule.peak, "warm_up": self.schedule.warm_up, "steps": self.schedule.steps},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The opposite of ``state``."""
        self.weights = state["weights"]
        self.mean, self.square = state["optimizer"]["mean"], state["optimizer"]["square"]
        self.step, self.epoch = state["step"], state["epoch"]
        self.order, self.position = state["order"], state["position"]
        self.random.bit_generator.state = state["random"]
        self.schedule = Schedule(**state["schedule"])
