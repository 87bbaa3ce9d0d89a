"""Nodes that are cut off: when they count as silent, what they cannot be told meanwhile, what is left running there.

A node that is cut off goes on with what runs there: it ends by itself, but nobody hears of it. Starts and notices that
are decided before the node counts as silent reach it only when it is back.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from makeway_policy.model import StopCause

from makeway_simulator.outcome import EndKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A stop that could not be told."""

    run_id: str
    grace_seconds: float
    cause: StopCause
    kind: EndKind | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Back:
    """What is to be told once a node is heard again: notices to it, and ends that it has to tell."""

    notices: tuple[Notice, ...]
    ends: tuple[str, ...]


class Network:
    """Who is cut off. A node counts as silent when it has not been heard for `silence_seconds`."""

    def __init__(self, silence_seconds: float) -> None:
        self._silence_seconds = silence_seconds
        self._cut: dict[str, float] = {}
        self._notices: dict[str, tuple[str, Notice]] = {}
        self._ends: dict[str, str] = {}
        self._left: dict[str, dict[str, float]] = {}
        self._emptying: list[tuple[float, str]] = []

    def cut(self, node_id: str, now: float) -> None:
        """The node is not heard from now on."""
        self._cut.setdefault(node_id, now + self._silence_seconds)

    def cut_off(self, node_ids: Iterable[str]) -> str | None:
        """One of these nodes that is cut off, if any is."""
        return next((node_id for node_id in node_ids if node_id in self._cut), None)

    def silent(self, now: float) -> tuple[str, ...]:
        """The nodes that count as silent by now."""
        return tuple(node_id for node_id, at in self._cut.items() if at <= now)

    def next_at(self, now: float) -> float | None:
        """When the next node becomes silent, or the next card empty; None if none will."""
        moments = [at for at in self._cut.values() if at > now]
        return min([*moments, *(at for at, _ in self._emptying[:1])], default=None)

    def keep_notice(self, node_id: str, notice: Notice) -> None:
        """The node is told when it is back."""
        self._notices[notice.run_id] = (node_id, notice)

    def keep_end(self, node_id: str, run_id: str) -> None:
        """A run has ended; the node tells it when it is back."""
        self._ends[run_id] = node_id

    def leave_behind(self, node_id: str, gpu_ids: Iterable[str], leaves_seconds: float) -> None:
        """What ran on these cards counts as lost and runs on all the same; told to stop, it takes so long."""
        if node_id in self._cut:
            self._left.setdefault(node_id, {}).update(dict.fromkeys(gpu_ids, leaves_seconds))

    def restore(self, node_id: str, now: float) -> tuple[Back, tuple[str, ...]]:
        """The node is heard again. Gives what is to be told, and the cards on which something is that was replaced."""
        self._cut.pop(node_id, None)
        notices = tuple(notice for node, notice in self._notices.values() if node == node_id)
        ends = tuple(run_id for run_id, node in self._ends.items() if node == node_id)
        for notice in notices:
            del self._notices[notice.run_id]
        for run_id in ends:
            del self._ends[run_id]
        left = self._left.pop(node_id, {})
        for gpu_id, seconds in left.items():
            if seconds == inf:
                continue  # nothing ends it: the card stays taken
            heapq.heappush(self._emptying, (now + seconds, gpu_id))
        return Back(notices=notices, ends=ends), tuple(left)

    def emptied(self, now: float) -> tuple[str, ...]:
        """The cards that are empty by now, of those on which something was left."""
        found = []
        while self._emptying and self._emptying[0][0] <= now:
            found.append(heapq.heappop(self._emptying)[1])
        return tuple(found)
