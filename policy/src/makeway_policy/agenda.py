"""What is to be judged, in queue order: buckets, holders that might move, and waves of blocked buckets."""

import heapq
from collections.abc import Callable

from makeway_policy.free import FreeCards
from makeway_policy.model import Shape
from makeway_policy.queue import Bucket, Key, Turns
from makeway_policy.reserving import Reservers
from makeway_policy.waking import Blocked, Wave


class Agenda:
    """The buckets and holds to judge; whoever is refused is blocked until something changes that concerns it.

    `out_of_room` is told of a shape for which there is no room any more before all of it had their turn.
    """

    def __init__(self, turns: Turns, reservers: Reservers, free: FreeCards) -> None:
        self.blocked = Blocked(turns)
        self._turns = turns
        self._reservers = reservers
        self._free = free
        self._ready: list[tuple[Key, int, Bucket | Wave | str]] = []
        self._waves: dict[Shape, Wave] = {}
        self._searching: dict[Bucket, None] = {}
        self._pushes = 0
        self.out_of_room: Callable[[Shape], None] = lambda _shape: None

    def next(self) -> Bucket | str | None:
        """What to judge next: a bucket, or a hold (its run's id); None when all are judged."""
        while self._ready:
            key, _, item = heapq.heappop(self._ready)
            if isinstance(item, str):
                place = self._turns.of_run(item)
                if place is None or place <= key:
                    return item
                self._push(item, place)
                continue
            if isinstance(item, Bucket):
                if item.listed_at != key:
                    continue
                item.listed_at = None
            bucket = self._next_of(item, key) if isinstance(item, Wave) else item
            if bucket is None or bucket.blocked is not None or not bucket.entries:
                continue
            actual = self._turns.of(bucket)
            if actual == key:
                self._searching.pop(bucket, None)
                return bucket
            self._push(bucket, actual)
        return None

    def judge_again(self, bucket: Bucket) -> None:
        """Have a bucket judged (again), where it was not searched yet."""
        self._unblock(bucket)
        if bucket.entries:
            if bucket.offers is not None:
                self._searching[bucket] = None
            self._push(bucket, self._turns.of(bucket))
        else:
            self._searching.pop(bucket, None)

    def widen(self, team: str | None = None) -> None:
        """Whoever of the team (None: of any) is to be judged already is searched for everywhere."""
        for bucket in self._searching:
            if team is None or bucket.team == team:
                bucket.offers = None

    def search_anew(self, bucket: Bucket) -> None:
        """Have a bucket judged (again), wherever it was searched before."""
        bucket.offers = None
        self.judge_again(bucket)

    def try_hold(self, run_id: str, key: Key) -> None:
        """Have a holder looked at in its place in the queue."""
        self._push(run_id, key)

    def try_shape(self, shape: Shape) -> None:
        """Try the blocked buckets of a shape, one after the other, while there is room for it."""
        wave = Wave(shape)
        found = self.blocked.next_of(wave)
        if found is not None:
            self._waves[shape] = wave
            self._push(wave, found[0])

    def _next_of(self, wave: Wave, key: Key) -> Bucket | None:
        """The wave's next bucket, while there is room for its shape."""
        if self._waves.get(wave.shape) is not wave:
            return None
        found = self.blocked.next_of(wave)
        if found is None or not self._free.has_room(wave.shape):
            del self._waves[wave.shape]
            if found is not None:
                self.out_of_room(wave.shape)
            return None
        place, lane, entry, bucket = found
        if place != key:
            self._push(wave, place)
            return None
        wave.after[lane] = entry
        self._unblock(bucket)
        following = self.blocked.next_of(wave)
        if following is None:
            del self._waves[wave.shape]
        else:
            self._push(wave, following[0])
        return bucket

    def _unblock(self, bucket: Bucket) -> None:
        self._reservers.unblock(bucket)
        self.blocked.remove(bucket)
        bucket.blocked = None

    def _push(self, item: Bucket | Wave | str, key: Key) -> None:
        if isinstance(item, Bucket):
            # Once is enough: where it comes too early, its place is looked at again then.
            if item.listed_at is not None and item.listed_at <= key:
                return
            item.listed_at = key
        self._pushes += 1
        heapq.heappush(self._ready, (key, self._pushes, item))
