"""The blocked buckets, arranged so that a change wakes only those that it concerns.

Buckets of one shape are tried one after the other, and only while there is room for the shape: a *wave*. Preemptors
wake when a node comes within their reach.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from makeway_policy.model import Reason, Shape
from makeway_policy.queue import Bucket
from makeway_policy.reach import FREE, NodeReach, Threshold

Key = tuple[float, ...]

_WANT_ROOM = frozenset({Reason.NO_ROOM, Reason.BACKING_OFF, Reason.RESERVED_FOR_ANOTHER})


class Blocked:
    """Blocked buckets by what could wake them."""

    def __init__(self) -> None:
        self._place: dict[tuple[object, ...], tuple[Key, Bucket, Shape, Threshold | None, bool]] = {}
        self._by_shape: dict[Shape, list[tuple[Key, int, Bucket]]] = {}
        self._takers: dict[tuple[Shape, bool], list[tuple[Threshold, int, Bucket]]] = {}
        self._by_team: dict[str, dict[tuple[object, ...], Bucket]] = {}
        self._by_reason: dict[Reason, dict[tuple[object, ...], Bucket]] = {}

    def add(self, bucket: Bucket, key: Key, shape: Shape, limit: Threshold | None, *, overrides: bool) -> None:
        """Note a blocked bucket. `limit` is how far it may reach for victims (None: it may take none)."""
        self.remove(bucket)
        if bucket.blocked is None:
            return
        reason = bucket.blocked.reason
        self._place[bucket.key] = (key, bucket, shape, limit, overrides)
        self._by_reason.setdefault(reason, {})[bucket.key] = bucket
        if reason in _WANT_ROOM:
            insort(self._by_shape.setdefault(shape, []), (key, id(bucket), bucket))
        self._by_team.setdefault(bucket.team, {})[bucket.key] = bucket
        if limit is not None:
            insort(self._takers.setdefault((shape, overrides), []), (limit, id(bucket), bucket))

    def remove(self, bucket: Bucket) -> None:
        """Forget a bucket: it is judged again, or gone."""
        place = self._place.pop(bucket.key, None)
        if place is None:
            return
        key, _, shape, limit, overrides = place
        for found in self._by_reason.values():
            found.pop(bucket.key, None)
        entries = self._by_shape.get(shape, [])
        position = bisect_left(entries, (key, id(bucket)))
        if position < len(entries) and entries[position][2] is bucket:
            del entries[position]
        self._by_team[bucket.team].pop(bucket.key, None)
        if limit is not None:
            takers = self._takers[(shape, overrides)]
            del takers[bisect_left(takers, (limit, id(bucket)))]

    def any(self) -> bool:
        """Whether any bucket is blocked."""
        return bool(self._place)

    def all(self) -> list[Bucket]:
        """Every blocked bucket."""
        return [place[1] for place in self._place.values()]

    def shapes(self) -> list[Shape]:
        """The shapes of buckets that want room."""
        return [shape for shape, entries in self._by_shape.items() if entries]

    def following(self, shape: Shape, after: Key | None) -> tuple[Key, Bucket] | None:
        """The next bucket of a shape that wants room, in queue order, after a place in it."""
        entries = self._by_shape.get(shape, [])
        position = 0 if after is None else bisect_right(entries, (after, float("inf")))
        return None if position >= len(entries) else (entries[position][0], entries[position][2])

    def of_team(self, team: str, reasons: frozenset[Reason]) -> list[Bucket]:
        """The team's buckets that were blocked for one of the reasons."""
        found = self._by_team.get(team, {}).values()
        return [bucket for bucket in found if bucket.blocked is not None and bucket.blocked.reason in reasons]

    def with_reason(self, reason: Reason) -> list[Bucket]:
        """All buckets that were blocked for a reason."""
        return list(self._by_reason.get(reason, {}).values())

    def takers(self) -> list[Bucket]:
        """All buckets that may take victims."""
        return [bucket for takers in self._takers.values() for _, _, bucket in takers]

    def reached(self, reach: NodeReach) -> Iterator[Bucket]:
        """The buckets that may reach what a node has to offer now; what is free needs no reach (see `following`)."""
        for (shape, overrides), takers in self._takers.items():
            if not takers:
                continue
            bound = reach.bound(shape, overrides=overrides)
            if bound == FREE:
                continue
            start = bisect_left(takers, (bound,))
            yield from [bucket for _, _, bucket in takers[start:]]
