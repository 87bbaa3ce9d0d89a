"""Searching a policy's values for the best objective, with optuna (the extra `makeway-simulator[tune]`).

The search is for the front: settings of which none is beaten in utilisation, wait and preemptions at once. The weights
then pick one from it. The start is always tried first, so the answer is never worse than what was there.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from makeway_policy.checks import problems
from makeway_policy.document import from_document

from makeway_simulator.engine import Engine
from makeway_simulator.errors import BadValue, SimulatorError, UnknownChoice
from makeway_simulator.limits import SECONDS_MOST
from makeway_simulator.objective import Terms, Weights, terms_of
from makeway_simulator.physics import Physics
from makeway_simulator.setting import Setting
from makeway_simulator.trace import Cluster, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """What may be tried: numbers from `least` to `most`, on a logarithmic scale or not, whole or not."""

    least: float
    most: float
    logarithmic: bool = False
    whole: bool = False


SEARCHED: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "delta": Range(least=1, most=50, whole=True),
        "classes.normal.grace": Range(least=5, most=600, logarithmic=True),
        "classes.normal.minimum_run": Range(least=1, most=3600, logarithmic=True),
        "classes.low.minimum_run": Range(least=1, most=3600, logarithmic=True),
        "classes.high.sla_wait": Range(least=10, most=3600, logarithmic=True),
        "classes.normal.sla_wait": Range(least=600, most=86_400, logarithmic=True),
        "classes.low.sla_wait": Range(least=3600, most=604_800, logarithmic=True),
        "progress_weight": Range(least=0, most=4),
        "victim_weights.v": Range(least=0, most=4),
        "victim_weights.cost": Range(least=0, most=4),
        "checkpoint_interval": Range(least=60, most=7200, logarithmic=True),
    }
)
"""Paths in a policy file (durations in seconds), and `checkpoint_interval`, which is the jobs' own."""

INTERVAL: Final = "checkpoint_interval"
_VICTIMS: Final = "victim_weights"
_ASKED: Final = 200
"""So many settings in a row may be none that a policy file can have, such as a delta that no two classes are apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One setting that was tried. `document` is a policy file's content."""

    values: Mapping[str, float]
    document: Mapping[str, Any]
    interval_seconds: float | None
    terms: Terms
    objective: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The start, the front (best objective first), and how many settings were tried."""

    start: Trial
    front: tuple[Trial, ...]
    tried: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What is tuned: a workload on a cluster, from a policy document, with some values fixed."""

    trace: Trace
    cluster: Cluster
    document: Mapping[str, Any]
    physics: Physics
    weights: Weights = field(default_factory=Weights)
    fixed: Mapping[str, float] = field(default_factory=dict)
    trials: int = 40
    seed: int = 1


def tune(search: Search, progress: Callable[[int], None] | None = None) -> Tuning:
    """Search.

    Raises UnknownChoice for a fixed value that is not searched, SimulatorError without optuna or where the values that
    are fixed make no policy.
    """
    unknown = [name for name in search.fixed if name not in SEARCHED]
    if unknown:
        raise UnknownChoice("value to fix", unknown[0], tuple(SEARCHED))
    wrong = _wrong_with(search, search.fixed)
    if wrong:
        raise SimulatorError(f"this is no policy to start from: {'; '.join(wrong)}")
    study = _study(search.seed)
    start = _tried(search, search.fixed)
    trials = [start]
    for number in range(search.trials):
        asked, values = _next_setting(study, search)
        if _wrong_with(search, values):
            break
        trial = _tried(search, values)
        study.tell(asked, [trial.terms.utilisation, trial.terms.wait, trial.terms.preemptions])
        trials.append(trial)
        if progress is not None:
            progress(number + 1)
    return Tuning(start=start, front=_front(trials), tried=len(trials))


def parse_fixed(texts: Sequence[str]) -> dict[str, float]:
    """Read `name=number` items. Raises BadValue, and SimulatorError where a name comes twice."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in found:
            raise SimulatorError(f"{name} is fixed twice, to {found[name]:g} and by {text}")
        try:
            whole = name in SEARCHED and SEARCHED[name].whole
            found[name] = int(value) if whole else float(value)
            if not 0 <= found[name] <= SECONDS_MOST:
                raise ValueError(value)
        except ValueError as error:
            raise BadValue("the fixed value", text, "name=number, such as delta=10") from error
    return found


def _study(seed: int) -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise SimulatorError("tuning needs optuna: pip install 'makeway-simulator[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=False)
    return optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)


def _ask(asked: Any, name: str, bounds: Range) -> float:
    if bounds.whole:
        return int(asked.suggest_int(name, int(bounds.least), int(bounds.most)))
    return float(asked.suggest_float(name, bounds.least, bounds.most, log=bounds.logarithmic))


def _next_setting(study: Any, search: Search) -> tuple[Any, dict[str, float]]:
    """The next to try: one that is a policy, if any of the next many is."""
    for _ in range(_ASKED):
        asked = study.ask()
        values = {
            name: search.fixed[name] if name in search.fixed else _ask(asked, name, bounds)
            for name, bounds in SEARCHED.items()
        }
        if not _wrong_with(search, values):
            break
        study.tell(asked, state=importlib.import_module("optuna").trial.TrialState.FAIL)
    return asked, values


def _wrong_with(search: Search, values: Mapping[str, float]) -> tuple[str, ...]:
    """What `makeway policy check` would say of a setting."""
    return problems(from_document(document_with(search.document, values)))


def _tried(search: Search, values: Mapping[str, float]) -> Trial:
    document = document_with(search.document, values)
    interval = values.get(INTERVAL, search.physics.checkpoint_interval_seconds)
    setting = Setting(
        cluster=search.cluster,
        policy=from_document(document),
        physics=replace(search.physics, checkpoint_interval_seconds=interval),
    )
    terms = terms_of(Engine(search.trace.jobs, setting).run(), search.trace.jobs)
    return Trial(
        values=values,
        document=document,
        interval_seconds=interval,
        terms=terms,
        objective=terms.weighed(search.weights),
    )


def document_with(document: Mapping[str, Any], values: Mapping[str, float]) -> dict[str, Any]:
    """The document with values set at their paths; weights of victims also choose the weighted order."""
    changed: dict[str, Any] = {**document}
    for path, value in values.items():
        if path == INTERVAL:
            continue
        *parents, last = path.split(".")
        place = changed
        for parent in parents:
            place[parent] = {**place.get(parent, {})}
            place = place[parent]
        place[last] = value if isinstance(value, int) else round(value, 3)
    if _VICTIMS in changed:
        changed["victims"] = "weighted"
    return changed


def _front(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    front = [each for each in trials if not any(other.terms.beats(each.terms) for other in trials)]
    return tuple(sorted(front, key=lambda each: -each.objective))
