"""Holders whose GPUs are not empty yet: which of them a change may let move to other free ones."""

from collections.abc import Collection

from makeway_policy.agenda import Agenda
from makeway_policy.changes import Changes
from makeway_policy.free import FreeCards
from makeway_policy.model import Job, Run, Shape
from makeway_policy.queue import Bucket, Key, Turns
from makeway_policy.rights import Rights
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState


class Movers:
    """The holders that may move; none where the policy has them stay. Each is tried in its place in the queue."""

    def __init__(
        self, state: PoolState, policy: Policy, waiting: tuple[Turns, Agenda], free: FreeCards, rights: Rights
    ) -> None:
        self._state = state
        self._policy = policy
        self._turns, self._agenda = waiting
        self._free = free
        self._rights = rights
        self._shapes: dict[str, Shape] = {}
        self._runs: dict[Shape, dict[str, str]] = {}
        self._places: dict[str, Key] = {}
        self._staying: dict[str, tuple[Bucket, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def note(self, job: Job, run: Run) -> None:
        """A job waits for GPUs that are being freed."""
        if self._policy.move_holds:
            self._shapes[job.job_id] = job.shape
            self._runs.setdefault(job.shape, {})[job.job_id] = run.run_id
            self._places.setdefault(job.job_id, self._turns.of_job(job, self._turns.now))

    def note_staying(self, job_id: str, ahead: Bucket) -> None:
        """A holder does not move, as the first of a bucket would get in where it leaves."""
        self._staying[job_id] = (ahead, ahead.head)

    def forget(self, job_id: str) -> None:
        """The job does not wait for GPUs that are being freed, or not any more."""
        shape = self._shapes.pop(job_id, None)
        if shape is not None:
            del self._runs[shape][job_id]
            if not self._runs[shape]:
                del self._runs[shape]

    def try_for(self, nodes: Collection[str] | None, now: float) -> bool:
        """Have those look for whom there are cards on nodes with new room; None: on any. Whether there are any."""
        found = False
        for shape, holders in self._runs.items():
            free, wanted = self._free.of(shape), max(1, shape.gpus)
            if not (free.any_with(wanted) if nodes is None else free.most_of(nodes) >= wanted):
                continue
            for job_id in holders:
                self._try(job_id, now)
                found = True
        return found

    def try_advanced(self, changes: Changes, now: float) -> None:
        """Have those look whom what is free may be for now, though it is no more and is not kept otherwise."""
        if not self._places:
            return
        found = [*self._changed(changes, now), *self._of_teams(changes), *self._not_passed(changes, now)]
        for job_id in sorted(dict.fromkeys(found)):
            self._try(job_id, now)

    def _try(self, job_id: str, now: float) -> None:
        run_id = self._runs[self._shapes[job_id]][job_id]
        self._agenda.try_hold(run_id, self._turns.of_job(self._state.jobs[job_id], now))

    def _changed(self, changes: Changes, now: float) -> list[str]:
        """Those that have come forward in the queue, or ask for something else; who has gone is forgotten."""
        found = []
        for job_id in changes.jobs:
            before = self._places.get(job_id)
            if before is None:
                continue
            if job_id not in self._shapes:
                del self._places[job_id]
                self._staying.pop(job_id, None)
                continue
            place = self._places[job_id] = self._turns.of_job(self._state.jobs[job_id], now)
            if place < before or job_id in changes.amended or job_id in changes.undone:
                found.append(job_id)
        return found

    def _of_teams(self, changes: Changes) -> list[str]:
        """Those whose team uses less or may use something else, where that says what they may have or when."""
        shared, rights = self._turns.fair, self._rights
        teams = changes.rights.union(team for team in changes.eased if shared or rights.limit(team))
        return [job_id for job_id in self._places if self._state.jobs[job_id].team in teams] if teams else []

    def _not_passed(self, changes: Changes, now: float) -> list[str]:
        """Those that stayed for one ahead of them who is not there any more, or whose team may have no more now."""
        found = []
        for job_id, (ahead, head) in tuple(self._staying.items()):
            gone = ahead.blocked is None or not ahead.entries or ahead.head != head or ahead.team in changes.teams
            if gone or self._turns.of(ahead) >= self._turns.of_job(self._state.jobs[job_id], now):
                del self._staying[job_id]
                found.append(job_id)
        return found
