"""The blocked buckets, arranged so that a change wakes only those that it concerns.

Buckets of one shape are tried one after the other, and only while there is room for the shape: a *wave*. Preemptors
wake when a node comes within their reach.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from makeway_policy import placement
from makeway_policy.model import Job, LeaseKind, Reason, Shape
from makeway_policy.queue import Bucket, Entry, Key, Lane, Turns
from makeway_policy.reach import FREE, NodeReach, Threshold

_Taking = tuple[Shape, bool, bool]
"""Takers by shape, by whether they override minimum runs, and whether free cards are all that they lack."""

_BY_TEAM = frozenset({Reason.TEAM_LIMIT, Reason.CLASS_LIMIT, Reason.ALLOWANCE})
_WANT_ROOM = frozenset({Reason.NO_ROOM, Reason.BACKING_OFF, Reason.RESERVED_FOR_ANOTHER})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a blocked bucket is noted. `limit` is how far it may reach for victims (None: it may take none)."""

    bucket: Bucket
    reason: Reason
    shape: Shape
    lane: Lane
    entry: Entry
    limit: Threshold | None
    overrides: bool
    avoids_gpus: bool
    eases: bool
    unsized: bool

    @property
    def taking(self) -> _Taking:
        """Which takers it is one of."""
        shape = self.shape
        whole = shape.gpus > 0 and placement.kind_of(shape) is LeaseKind.WHOLE and not self.avoids_gpus
        return shape, self.overrides, whole and shape.members == 1 and self.reason in _WANT_ROOM

    @property
    def by_limit(self) -> bool:
        """Whether a limit may be what keeps it out."""
        return self.reason in _BY_TEAM or self.unsized


@dataclass(slots=True, eq=False)
class Wave:
    """The blocked buckets of a shape, tried in queue order; `after` is how far it has come in each lane."""

    shape: Shape
    after: dict[Lane, Entry] = field(default_factory=dict)


class Blocked:
    """Blocked buckets by what could wake them."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._place: dict[Bucket, _Place] = {}
        self._by_shape: dict[Shape, dict[Lane, list[tuple[Entry, Bucket]]]] = {}
        self._takers: dict[_Taking, list[tuple[Threshold, int, Bucket]]] = {}
        self._by_team: dict[str, dict[Bucket, None]] = {}
        self._by_reason: dict[Reason, dict[Bucket, None]] = {}
        self._over: dict[str, dict[Bucket, _Place]] = {}

    def add(self, bucket: Bucket, job: Job, limit: Threshold | None, *, overrides: bool, limited: bool = False) -> None:
        """Note a blocked bucket with its first job. `limit` is how far it may reach for victims (None: none).

        `limited`: its team has limits. What a share counts is known only where it is placed: of one that may take
        victims, none may be within the limits, whatever the reason that it is told.
        """
        self.remove(bucket)
        if bucket.blocked is None:
            return
        reason, shape = bucket.blocked.reason, job.shape
        place = _Place(
            bucket=bucket, reason=reason, shape=shape, lane=self._turns.lane(bucket), entry=bucket.entries[0],
            limit=limit, overrides=overrides, avoids_gpus=bool(job.avoid_gpus),
            eases="eases" in bucket.blocked.detail,
            unsized=limited and limit is not None and placement.kind_of(shape) is not LeaseKind.WHOLE,
        )  # fmt: skip
        self._place[bucket] = place
        self._by_reason.setdefault(reason, {})[bucket] = None
        self._by_team.setdefault(bucket.team, {})[bucket] = None
        if reason in _WANT_ROOM:
            insort(self._by_shape.setdefault(shape, {}).setdefault(place.lane, []), (place.entry, bucket))
        if limit is not None and place.by_limit:
            self._over.setdefault(bucket.team, {})[bucket] = place
        if limit is not None:
            insort(self._takers.setdefault(place.taking, []), (limit, id(bucket), bucket))

    def remove(self, bucket: Bucket) -> None:
        """Forget a bucket: it is judged again, or gone."""
        place = self._place.pop(bucket, None)
        if place is None:
            return
        del self._by_reason[place.reason][bucket]
        del self._by_team[bucket.team][bucket]
        if place.reason in _WANT_ROOM:
            lanes = self._by_shape[place.shape]
            entries = lanes[place.lane]
            del entries[bisect_left(entries, (place.entry,))]
            if not entries:
                del lanes[place.lane]
        if place.limit is not None and place.by_limit:
            del self._over[bucket.team][bucket]
        if place.limit is not None:
            takers = self._takers[place.taking]
            del takers[bisect_left(takers, (place.limit, id(bucket)))]

    def __len__(self) -> int:
        return len(self._place)

    def all(self) -> list[Bucket]:
        """Every blocked bucket."""
        return list(self._place)

    def shapes(self) -> list[Shape]:
        """The shapes of buckets that want room."""
        return [shape for shape, lanes in self._by_shape.items() if lanes]

    def first_of_each_shape(self, before: Key, may_have: Callable[[Bucket], bool]) -> Iterator[Bucket]:
        """The first bucket of each shape that wants room and may have it, if it is before a place in the queue."""
        for shape in self.shapes():
            wave = Wave(shape)
            while (found := self.next_of(wave)) is not None and found[0] < before:
                _, lane, entry, bucket = found
                if may_have(bucket):
                    yield bucket
                    break
                wave.after[lane] = entry

    def next_of(self, wave: Wave) -> tuple[Key, Lane, Entry, Bucket] | None:
        """The wave's next bucket and its place in the queue; None when all have been tried."""
        best: tuple[Key, Lane, Entry, Bucket] | None = None
        for lane, entries in self._by_shape.get(wave.shape, {}).items():
            after = wave.after.get(lane)
            position = 0 if after is None else bisect_right(entries, after, key=_entry)
            if position < len(entries):
                entry, bucket = entries[position]
                key = self._turns.key(lane, entry)
                if best is None or key < best[0]:
                    best = (key, lane, entry, bucket)
        return best

    def of_team(self, team: str, reasons: frozenset[Reason]) -> list[Bucket]:
        """The team's buckets that were blocked for one of the reasons."""
        found = self._by_team.get(team, ())
        return [bucket for bucket in found if bucket.blocked is not None and bucket.blocked.reason in reasons]

    def by_limit(self, team: str) -> list[Bucket]:
        """The team's buckets that a limit may keep out."""
        return [bucket for bucket in self._by_team.get(team, ()) if self._place[bucket].by_limit]

    @property
    def any_over_quota(self) -> bool:
        """Whether a limit keeps out anybody who may take victims."""
        return any(self._over.values())

    def over_quota(self, team: str, threshold: Threshold) -> list[Bucket]:
        """The team's buckets that a limit keeps out, whom a new run of that threshold concerns, of their own team.

        They may reach it, or waited for others to leave their quota to them.
        """
        return [
            place.bucket
            for place in self._over.get(team, {}).values()
            if (place.limit is not None and threshold <= place.limit) or place.eases
        ]

    def of_shape(self, shape: Shape) -> list[Bucket]:
        """All buckets of a shape that want room."""
        return [bucket for entries in self._by_shape.get(shape, {}).values() for _, bucket in entries]

    def with_reason(self, reason: Reason) -> list[Bucket]:
        """All buckets that were blocked for a reason."""
        return list(self._by_reason.get(reason, ()))

    def reached(self, reach: NodeReach) -> tuple[list[Bucket], list[Shape]]:
        """The buckets that are to be judged for what a node has to offer now, as they may reach it; and the shapes that
        it is offered to in turn.

        What is free needs no reach: it is offered in turn (see `next_of`), as far as it is what they want, which on a
        node of several models it may not be. Whoever has its turn and may not have it may look for victims there.
        """
        turns = reach.room.uniform and not reach.counts_host
        found: list[Bucket] = []
        in_turn: list[Shape] = []
        for (shape, overrides, content), takers in self._takers.items():
            if not takers:
                continue
            bound = reach.bound(shape, overrides=overrides)
            if turns and content and bound == FREE:
                in_turn.append(shape)
            elif bound <= takers[-1][0]:
                found.extend([bucket for _, _, bucket in takers[bisect_left(takers, (bound,)) :]])
        return found, in_turn

    def of_shape_reached(self, shape: Shape, bound_for: Callable[[bool], Threshold]) -> list[Bucket]:
        """The buckets of a shape that may reach what at least has to leave; asked by whether minimum runs count not."""
        found: list[Bucket] = []
        for (wanted, overrides, _), takers in self._takers.items():
            if wanted == shape and takers and bound_for(overrides) <= takers[-1][0]:
                found.extend([bucket for _, _, bucket in takers[bisect_left(takers, (bound_for(overrides),)) :]])
        return found

    def may_reach(self, threshold: Threshold, *, overriding: bool) -> bool:
        """Whether any bucket may reach so far for victims; `overriding`: any that overrides minimum runs."""
        return any(
            takers[-1][0] >= threshold
            for (_, overrides, _), takers in self._takers.items()
            if takers and (overrides or not overriding)
        )


def _entry(place: tuple[Entry, Bucket]) -> Entry:
    return place[0]
