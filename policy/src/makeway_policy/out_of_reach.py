"""Which requests could take victims nowhere: nobody who wants as much asks all nodes again until some of them change.

Whoever wants no fewer GPUs of the same kind and may reach no further is out of reach of the same nodes. Of those that
have changed since, each is looked at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from makeway_policy.lately import Lately
from makeway_policy.model import Shape
from makeway_policy.reach import Threshold

_CHANGES_KEPT = 1024
_KEPT = 4
"""So many answers are kept for each kind of request, those that were found last."""
_SUSPECTS = 32
"""With more nodes that may be in reach an answer says too little: all nodes at once are asked in less time."""

Kind = tuple[object, ...]

IsWithin = Callable[[str, int, Threshold], bool]
"""Whether so many GPUs on a node are within that reach, for the kind of request that is asked about."""


@dataclass(kw_only=True, slots=True)
class _Out:
    """No node but the suspects has so many GPUs within the limit. Changes were counted up to `seen`."""

    gpus: int
    limit: Threshold
    seen: int
    suspects: set[str] = field(default_factory=set)

    def covers(self, gpus: int, limit: Threshold) -> bool:
        """Whether it says something about such a request."""
        return self.gpus <= gpus and limit <= self.limit


class OutOfReach:
    """What was found out, and which nodes have changed since."""

    def __init__(self) -> None:
        self._changed = Lately(_CHANGES_KEPT)
        self._known: dict[Kind, list[_Out]] = {}

    def node_changed(self, node_id: str) -> None:
        """A node may have more to offer than before."""
        self._changed.add(node_id)

    def note(self, kind: Kind, gpus: int, limit: Threshold) -> None:
        """No node has so many GPUs within the limit."""
        new = _Out(gpus=gpus, limit=limit, seen=self._changed.count)
        others = [out for out in self._known.get(kind, ()) if not new.covers(out.gpus, out.limit)]
        self._known[kind] = [*others[1 - _KEPT :], new]

    def answer(self, kind: Kind, gpus: int, limit: Threshold, is_within: IsWithin) -> bool | None:
        """Whether any node has so many GPUs within the limit; None where all have to be asked."""
        for out in self._known.get(kind, ()):
            if out.covers(gpus, limit):
                changed = self._changed.since(out.seen)
                if changed is None:
                    self._known[kind].remove(out)
                    return None
                out.seen = self._changed.count
                out.suspects.difference_update(changed)
                out.suspects.update(each for each in changed if is_within(each, out.gpus, out.limit))
                if len(out.suspects) > _SUSPECTS:
                    self._known[kind].remove(out)
                    return None
                return any(is_within(each, gpus, limit) for each in out.suspects)
        return None


def kind_of_request(shape: Shape, *, overrides: bool) -> Kind:
    """What decides how far a preemptor has to reach on a node, but for the number of GPUs."""
    return (shape.gpu_type, shape.min_vram_mib, shape.vram_mib, shape.shares, shape.mig, overrides)
