"""The rivals by name, run on a trace."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from makeway_simulator.errors import UnknownChoice
from makeway_simulator.outcome import JobOutcome
from makeway_simulator.rivals.attained import LeastAttained
from makeway_simulator.rivals.loop import Charge, Rival, placeable, run
from makeway_simulator.rivals.shortest import srsf, srtf
from makeway_simulator.trace import Cluster, Trace

RIVALS: Final[Mapping[str, Callable[[Cluster], Rival]]] = MappingProxyType(
    {"srtf": srtf, "srsf": srsf, "tiresias-l": LeastAttained}
)


def study(
    trace: Trace, cluster: Cluster, policy: str, charge: Charge, progress: Callable[[int], None] | None = None
) -> tuple[list[JobOutcome], int]:
    """The outcomes, and how many jobs could never have fitted. Raises UnknownChoice."""
    make = RIVALS.get(policy)
    if make is None:
        raise UnknownChoice("policy", policy, tuple(RIVALS))
    jobs, refused = placeable(trace.jobs, cluster)
    return run(jobs, make(cluster), charge, progress), refused
