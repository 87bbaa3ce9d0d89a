"""The rivals by name, run on a trace."""

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from makeway_simulator.errors import UnknownChoice
from makeway_simulator.record import Record
from makeway_simulator.rivals.attained import LeastAttained
from makeway_simulator.rivals.loop import Charge, Rival, placeable, run
from makeway_simulator.rivals.seats import Seats
from makeway_simulator.rivals.shortest import srsf, srtf
from makeway_simulator.trace import Cluster, Trace

RIVALS: Final[Mapping[str, Callable[[Cluster], Rival]]] = MappingProxyType(
    {"srtf": srtf, "srsf": srsf, "tiresias-l": LeastAttained}
)


def study(
    trace: Trace, cluster: Cluster, policy: str, charge: Charge, progress: Callable[[int], None] | None = None
) -> Record:
    """What came of it; preemptions stand in the outcomes and the segments alone. Raises UnknownChoice."""
    make = RIVALS.get(policy)
    if make is None:
        raise UnknownChoice("policy", policy, tuple(RIVALS))
    jobs, refused = placeable(trace.jobs, cluster)
    seats = Seats(cluster)
    outcomes = run(jobs, make(cluster), charge, progress, seats.follow)
    return Record(
        cluster=cluster,
        outcomes=outcomes,
        segments=seats.segments,
        moments=seats.moments,
        ended=Counter(each.kind for each in outcomes),
        unfinished=refused,
        refused=refused,
    )
