"""What each waiting job avoids now, of the nodes and GPUs on which its runs were lost or did not start.

A node or GPU counts until its `Avoidance` is over, and while something else in use could run the job if it were idle.
Where nothing else could, the oldest are let off, one after the other, nodes before GPUs, until something could: the one
where it failed last is the last to be tried again. So nobody waits for a healthy node because of it but for a bounded
time, and then only where another one could become free before.
"""

from makeway_policy import capacity
from makeway_policy.changes import Changes
from makeway_policy.copies import changed
from makeway_policy.model import Job, Shape
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState
from makeway_policy.timers import Timers

_Question = tuple[Shape, str | None, tuple[str, ...], tuple[str, ...]]


class Avoiding:
    """Keeps `avoid_nodes` and `avoid_gpus` of the jobs that wait, as things are."""

    def __init__(self, state: PoolState, policy: Policy, timers: Timers) -> None:
        self._state = state
        self._policy = policy
        self._timers = timers
        self._jobs: dict[str, None] = {}
        self._fits: dict[_Question, bool] = {}
        self._hardware_version = -1

    def settle(self, changes: Changes, now: float) -> None:
        """Look at the jobs that changed, and at all that avoid anything once the hardware has."""
        due = [job_id for job_id in changes.jobs if self._may_avoid(job_id)]
        if self._hardware_version != self._state.hardware_version:
            self._hardware_version = self._state.hardware_version
            self._fits.clear()
            due.extend(self._jobs)
        for job_id in sorted(set(due)):
            self._settle_one(job_id, now)

    def _may_avoid(self, job_id: str) -> bool:
        job = self._state.jobs.get(job_id)
        return job_id in self._jobs if job is None else bool(job.avoidance.nodes or job.avoidance.gpus)

    def _settle_one(self, job_id: str, now: float) -> None:
        job, run = self._state.jobs.get(job_id), self._state.run_of(job_id)
        waits = job is not None and (run is None or run.started_at is None)
        if job is None or not waits or job.avoidance.until <= now:
            self._jobs.pop(job_id, None)
            self._timers.set("avoid", job_id, None)
        else:
            self._jobs[job_id] = None
            self._timers.set("avoid", job_id, job.avoidance.until)
        if job is None or not waits:
            return
        nodes, gpus = self._counting(job, now)
        if (nodes, gpus) != (job.avoid_nodes, job.avoid_gpus):
            self._state.put_job(changed(job, avoid_nodes=nodes, avoid_gpus=gpus))
            # One that holds GPUs which are not empty yet may have others now.
            self._state.changes.amended.add(job_id)

    def _counting(self, job: Job, now: float) -> tuple[frozenset[str], frozenset[str]]:
        nodes, gpus = job.avoidance.nodes, job.avoidance.gpus
        if job.avoidance.until <= now:
            nodes, gpus = (), ()
        while (nodes or gpus) and not self._fits_without(job, nodes, gpus):
            nodes, gpus = (nodes[1:], gpus) if nodes else ((), gpus[1:])
        return frozenset(nodes), frozenset(gpus)

    def _fits_without(self, job: Job, nodes: tuple[str, ...], gpus: tuple[str, ...]) -> bool:
        question = (job.shape, job.resume_node, nodes, gpus)
        if question not in self._fits:
            self._fits[question] = capacity.fits_without(self._state, self._policy, job, nodes, gpus)
        return self._fits[question]
