"""Each team's runs in the order in which they add up against its guarantee, kept while runs come, change and go.

The order is by v, highest first, then start, then admission. Whoever asks again after a few changes pays for these
alone, and for adding up figures: who is borrowed is asked of every possible victim.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from itertools import accumulate

Place = tuple[float, float, int, str]
"""(-v, start or decision, admission number, run id)."""

Found = tuple[str, Place | None, int]
"""(team, place, millionths of a GPU) of a run."""


class Standing:
    """One team's runs that stay. `place_of` gives a run's place in the order, None where it does not stay."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._units: list[int] = []
        self._place_of: dict[str, Place] = {}
        self._sums: list[int] | None = None

    def put(self, run_id: str, place: Place | None, units: int) -> None:
        """Note a run that came or changed; with no place, that it stays no more."""
        before = self._place_of.pop(run_id, None)
        if before is not None:
            number = bisect_left(self._places, before)
            del self._places[number], self._units[number]
        if place is not None:
            number = bisect_left(self._places, place)
            self._places.insert(number, place)
            self._units.insert(number, units)
            self._place_of[run_id] = place
        self._sums = None

    def place_of(self, run_id: str) -> Place | None:
        """Where the run stands."""
        return self._place_of.get(run_id)

    def up_to(self, place: Place, gone: Collection[str] = ()) -> int:
        """What the runs up to a place and at it use in millionths of a GPU, once `gone` have left."""
        total = self._up_to(bisect_right(self._places, place))
        for run_id in gone:
            its_place = self._place_of.get(run_id)
            if its_place is not None and its_place <= place:
                total -= self._units[bisect_left(self._places, its_place)]
        return total

    def of_at_least(self, v: int) -> int:
        """What the runs of this v and above use in millionths of a GPU."""
        return self._up_to(bisect_right(self._places, float(-v), key=_minus_v))

    def beyond(self, units: int) -> list[str]:
        """The first run with which the sum goes beyond so many units, and all after it."""
        first = bisect_right(self._added_up(), units)
        return [place[3] for place in self._places[first:]]

    def _up_to(self, number: int) -> int:
        return self._added_up()[number - 1] if number else 0

    def _added_up(self) -> list[int]:
        if self._sums is None:
            self._sums = list(accumulate(self._units))
        return self._sums


class Standings:
    """The standing of each team that somebody has asked for.

    `find` gives a run's team, where it stands (None: it does not stay) and what it uses, None where it is gone;
    `of_team` the runs of a team.
    """

    def __init__(self, find: Callable[[str], Found | None], of_team: Callable[[str], Collection[str]]) -> None:
        self._find = find
        self._of_team = of_team
        self._standings: dict[str, Standing] = {}
        self._team_of: dict[str, str] = {}
        self._changed: set[str] = set()

    def note(self, run_id: str) -> None:
        """A run has come, has changed or is gone."""
        if self._standings:
            self._changed.add(run_id)

    def forget(self) -> None:
        """Something else has changed that may count."""
        self._standings.clear()
        self._team_of.clear()
        self._changed.clear()

    def of(self, team_id: str) -> Standing:
        """The team's standing as things are."""
        changed, self._changed = self._changed, set()
        for run_id in changed:
            self._take(run_id)
        found = self._standings.get(team_id)
        if found is None:
            found = self._standings[team_id] = Standing()
            for run_id in self._of_team(team_id):
                self._take(run_id)
        return found

    def _take(self, run_id: str) -> None:
        found = self._find(run_id)
        before = self._team_of.pop(run_id, None)
        if before is not None and (found is None or found[0] != before):
            self._standings[before].put(run_id, None, 0)
        if found is not None and found[0] in self._standings:
            self._standings[found[0]].put(run_id, *found[1:])
            self._team_of[run_id] = found[0]


def _minus_v(place: Place) -> float:
    return place[0]
