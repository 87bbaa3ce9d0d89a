"""What teams use, from the leases themselves: each GPU once a team, also while one of its runs leaves for another."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from makeway_policy.journal import Journal
from makeway_policy.model import Gpu, Job, Lease, LeaseState, Run

_LEAVING = LeaseState.LEAVING
_LIVE = LeaseState.LIVE

UNITS_PER_GPU = 1_000_000
"""Usage is counted in whole millionths of a GPU, so that adding and taking away leaves nothing behind."""

Key = tuple[str, ...]
"""(team,), (team, "class", class) or (team, "user", user); (team, "fixed", ""): jobs with `preemptible: false`; (team,
"hard", ""): those in hard disruption groups."""

Share = tuple[Key, int, int]
"""(key, units now, units when what is leaving has left) of one GPU."""

_NOTHING = (0, 0)


def is_leaving(run: Run) -> bool:
    """Whether the run's stop is decided, whatever state its leases have."""
    return run.lease_state is _LEAVING or run.withdrawing or run.noticed_at is not None


def has_started(before: Run, after: Run) -> bool:
    """Whether a run is as it was, but for having started on what it had."""
    return (
        before.started_at is None
        and after.started_at is not None
        and before.v == after.v
        and before.members is after.members
        and before.moves_to is after.moves_to
        and before.lease_state is _LIVE
        and after.lease_state is _LIVE
        and not is_leaving(before)
        and not is_leaving(after)
    )


def units_of(gpu: Gpu, vram_mib: int, slots: int) -> int:
    """What a lease counts against a quota, in millionths of a GPU: a whole card 1, a share its fraction."""
    if gpu.mig_profile is not None or slots >= gpu.slots:
        return UNITS_PER_GPU
    if vram_mib and gpu.vram_mib:
        return round(UNITS_PER_GPU * vram_mib / gpu.vram_mib)
    return round(UNITS_PER_GPU * slots / gpu.slots)


class Usage:
    """The counters, changed through the journal."""

    def __init__(self, journal: Journal, in_hard_group: Callable[[Job], bool]) -> None:
        self._journal = journal
        self._in_hard_group = in_hard_group
        self._shares_of_gpu: dict[str, tuple[Share, ...]] = {}
        self._used: dict[Key, tuple[int, int]] = {}

    def of(self, key: Key, *, later: bool = False) -> int:
        """Millionths of a GPU that are used, now or (`later`) when what is leaving has left."""
        return self._used.get(key, _NOTHING)[later]

    def share_of(
        self, run: Run, key: Key, found: Iterable[tuple[str, Gpu | None, Sequence[Run]]], jobs: Mapping[str, Job]
    ) -> int:
        """What of the usage now is the run's own, on its GPUs: nothing where one that leaves counts anyway."""
        own = 0
        for gpu_id, gpu, runs in found:
            rest = [each for each in runs if each.run_id != run.run_id]
            without = self._sum(gpu, rest, jobs) if gpu is not None else ()
            own += sum(now for owner, now, _ in self._shares_of_gpu.get(gpu_id, ()) if owner == key)
            own -= sum(now for owner, now, _ in without if owner == key)
        return own

    def recount(
        self, found: Iterable[tuple[str, Gpu | None, Sequence[Run]]], jobs: Mapping[str, Job]
    ) -> dict[str, bool]:
        """Count some GPUs anew: their ids, what they are (None: gone), and what is on them (nothing where fenced).

        Returns the teams whose usage has changed, and whether they use less of something than before.
        """
        sums: dict[Key, list[int]] = {}
        before: tuple[Share, ...] = ()
        after: tuple[Share, ...] = ()
        # GPUs of one run follow each other and share one value: it is counted once, so many times.
        times = 0
        last: tuple[Gpu, Run, tuple[Share, ...]] | None = None
        for gpu_id, gpu, runs in found:
            old = self._shares_of_gpu.get(gpu_id, ())
            if gpu is None or not runs:
                new: tuple[Share, ...] = ()
            elif last is not None and runs[0] is last[1] and len(runs) == 1 and _are_alike(gpu, last[0]):
                new = last[2]
            else:
                new = self._shares(gpu, runs, jobs)
                last = (gpu, runs[0], new) if _has_whole_cards(runs, gpu) else None
            if old == new:
                continue
            if old is not before or new is not after:
                _count(sums, before, -times)
                _count(sums, after, times)
                before, after, times = old, new, 0
            times += 1
            if new:
                self._journal.put(self._shares_of_gpu, gpu_id, new)
            else:
                self._journal.delete(self._shares_of_gpu, gpu_id)
        _count(sums, before, -times)
        _count(sums, after, times)
        return self._add(sums)

    def _add(self, sums: Mapping[Key, list[int]]) -> dict[str, bool]:
        moved: dict[str, bool] = {}
        for key, (now, later) in sums.items():
            if not now and not later:
                continue
            before = self._used.get(key, _NOTHING)
            total = (before[0] + now, before[1] + later)
            if total == _NOTHING:
                self._journal.delete(self._used, key)
            else:
                self._journal.put(self._used, key, total)
            moved[key[0]] = moved.get(key[0], False) or now < 0 or later < 0
        return moved

    def _shares(self, gpu: Gpu, runs: Sequence[Run], jobs: Mapping[str, Job]) -> tuple[Share, ...]:
        run = runs[0]
        if len(runs) != 1 or run.moves_to:
            return self._sum(gpu, runs, jobs)
        # What `_sum` gives for one run that keeps nothing elsewhere.
        units = _units(gpu, run.leases)
        later = 0 if is_leaving(run) else units
        return tuple([(key, units, later) for key in self.keys_of(jobs[run.job_id])])

    def _sum(self, gpu: Gpu, runs: Iterable[Run], jobs: Mapping[str, Job]) -> tuple[Share, ...]:
        sums: dict[Key, list[int]] = {}
        for run in runs:
            place = 1 if is_leaving(run) else 0 if run.lease_state is _LIVE else 2
            units = _units(gpu, run.leases)
            kept = _units(gpu, [lease for member in run.moves_to for lease in member.leases]) if run.moves_to else 0
            for key in self.keys_of(jobs[run.job_id]):
                share = sums.setdefault(key, [0, 0, 0])
                share[place] += units
                share[2] += kept
        return tuple((key, live + max(leaving, coming), live + coming) for key, (live, leaving, coming) in sums.items())

    def keys_of(self, job: Job) -> tuple[Key, ...]:
        """Everything that a run of the job counts under."""
        keys: tuple[Key, ...] = ((job.team,), (job.team, "class", job.class_name), (job.team, "user", job.user))
        if not job.preemptible:
            keys = (*keys, (job.team, "fixed", ""))
        return (*keys, (job.team, "hard", "")) if self._in_hard_group(job) else keys


def _has_whole_cards(runs: Sequence[Run], gpu: Gpu) -> bool:
    """Whether there is one run alone, which has each of its cards for itself."""
    return len(runs) == 1 and not runs[0].moves_to and all(lease.slots >= gpu.slots for lease in runs[0].leases)


def _are_alike(one: Gpu, other: Gpu) -> bool:
    """Whether the same leases count the same on both."""
    return (one.vram_mib, one.slots, one.mig_profile) == (other.vram_mib, other.slots, other.mig_profile)


def _count(sums: dict[Key, list[int]], shares: Iterable[Share], times: int) -> None:
    """Add shares to the sums so many times."""
    for key, now, later in shares:
        total = sums.get(key)
        if total is None:
            sums[key] = [times * now, times * later]
        else:
            total[0] += times * now
            total[1] += times * later


def _units(gpu: Gpu, leases: Iterable[Lease]) -> int:
    return sum([units_of(gpu, lease.vram_mib, lease.slots) for lease in leases if lease.gpu_id == gpu.gpu_id])
