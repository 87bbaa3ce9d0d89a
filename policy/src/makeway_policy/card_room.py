"""How much room a card has: now, and later, when what is leaving has left.

A run is *leaving* when its stop is decided, whatever state its leases have. Now: LIVE and LEAVING fit the card, and so
do LIVE and NEXT, so a run that starts at once needs what both leave over. Later: what stays (LIVE), is to come (NEXT)
and is kept (PENDING) must fit together with the newcomer.
"""

from collections.abc import Collection, Sequence

from makeway_policy.copies import value
from makeway_policy.model import Gpu, Lease, LeaseKind, LeaseState, Run
from makeway_policy.state import is_leaving

_WHOLE = LeaseKind.WHOLE
_NEXT = LeaseState.NEXT
_PENDING = LeaseState.PENDING

_NO_KINDS: frozenset[LeaseKind] = frozenset()
_KINDS = {kind: frozenset({kind}) for kind in LeaseKind}
_SETTLED = (LeaseState.LIVE, LeaseState.LEAVING)


@value(frozen=True, kw_only=True, slots=True)
class CardRoom:
    """What is left of one GPU. `kinds` are the kinds of leases on it, which never mix.

    `leaving` are the runs on it that are going (a card whose room now suffices need not wait for them), `staying` those
    that are not, `runs` all of them, as they were when one of them last came, left or was told to: whether they have
    started since is not seen in them.
    """

    gpu: Gpu
    vram_now: int
    slots_now: int
    kinds_now: frozenset[LeaseKind]
    vram_later: int
    slots_later: int
    kinds_later: frozenset[LeaseKind]
    leaving: tuple[str, ...]
    staying: tuple[str, ...]
    runs: tuple[Run, ...]

    @property
    def empty_now(self) -> bool:
        """Whether nothing is or will be on it."""
        return not self.kinds_now

    @property
    def empty_later(self) -> bool:
        """Whether nothing will be on it once what is leaving has left."""
        return not self.kinds_later


def lease_kind(gpu: Gpu, lease: Lease) -> LeaseKind:
    """Whole card, sized share, or slots without a size."""
    if lease.slots >= gpu.slots and lease.vram_mib >= gpu.vram_mib:
        return _WHOLE
    return LeaseKind.SIZED if lease.vram_mib else LeaseKind.SLOTS


def card_room(gpu: Gpu, runs: tuple[Run, ...], gone: Collection[str] = (), added: Collection[Lease] = ()) -> CardRoom:
    """The card's room with these runs on it, of which `gone` count as leaving, and `added` leases of one more."""
    if not runs and not added:
        return CardRoom(
            gpu=gpu, vram_now=gpu.vram_mib, slots_now=gpu.slots, kinds_now=_NO_KINDS, vram_later=gpu.vram_mib,
            slots_later=gpu.slots, kinds_later=_NO_KINDS, leaving=(), staying=(), runs=(),
        )  # fmt: skip
    if len(runs) == 1 and not added:
        alone = _taken_by_one(gpu, runs, gone)
        if alone is not None:
            return alone
    live = [0, 0]
    stopping = [0, 0]
    coming = [0, 0]
    kept = [0, 0]
    kinds_now: set[LeaseKind] = set()
    kinds_later: set[LeaseKind] = set()
    leaving: list[str] = []
    staying: list[str] = []
    for run in runs:
        going = is_leaving(run) or run.run_id in gone
        for lease in run.leases:
            if lease.gpu_id != gpu.gpu_id:
                continue
            kind = lease_kind(gpu, lease)
            sums = _sums(run, going, live, stopping, coming, kept)
            sums[0] += lease.vram_mib
            sums[1] += lease.slots
            kinds_now.add(kind)
            if not going:
                kinds_later.add(kind)
                if run.lease_state is _NEXT:
                    kept[0] += lease.vram_mib
                    kept[1] += lease.slots
        for member in run.moves_to:
            for lease in member.leases:
                if lease.gpu_id == gpu.gpu_id:
                    kept[0] += lease.vram_mib
                    kept[1] += lease.slots
                    kinds_now.add(lease_kind(gpu, lease))
                    kinds_later.add(lease_kind(gpu, lease))
        if going and any(lease.gpu_id == gpu.gpu_id for lease in run.leases):
            leaving.append(run.run_id)
        elif not going:
            staying.append(run.run_id)
    for lease in added:
        live[0] += lease.vram_mib
        live[1] += lease.slots
        kinds_now.add(lease_kind(gpu, lease))
        kinds_later.add(lease_kind(gpu, lease))
    return CardRoom(
        gpu=gpu,
        vram_now=gpu.vram_mib - live[0] - max(stopping[0], coming[0], kept[0]),
        slots_now=gpu.slots - live[1] - max(stopping[1], coming[1], kept[1]),
        kinds_now=frozenset(kinds_now),
        vram_later=gpu.vram_mib - live[0] - kept[0],
        slots_later=gpu.slots - live[1] - kept[1],
        kinds_later=frozenset(kinds_later),
        leaving=tuple(leaving),
        staying=tuple(staying),
        runs=runs,
    )


def _taken_by_one(gpu: Gpu, runs: tuple[Run, ...], gone: Collection[str]) -> CardRoom | None:
    """What the general case gives for the usual card: one run with one lease, LIVE or LEAVING. None for any other."""
    run = runs[0]
    leases: Sequence[Lease] = run.leases
    if len(leases) > 1:
        gpu_id = gpu.gpu_id
        leases = [lease for lease in leases if lease.gpu_id == gpu_id]
    if len(leases) != 1 or run.moves_to or run.lease_state not in _SETTLED:
        return None
    lease = leases[0]
    going = is_leaving(run) or run.run_id in gone
    kinds = _KINDS[lease_kind(gpu, lease)]
    vram_left, slots_left = gpu.vram_mib - lease.vram_mib, gpu.slots - lease.slots
    return CardRoom(
        gpu=gpu,
        vram_now=vram_left,
        slots_now=slots_left,
        kinds_now=kinds,
        vram_later=gpu.vram_mib if going else vram_left,
        slots_later=gpu.slots if going else slots_left,
        kinds_later=_NO_KINDS if going else kinds,
        leaving=(run.run_id,) if going else (),
        staying=() if going else (run.run_id,),
        runs=runs,
    )


def _sums(run: Run, going: bool, live: list[int], stopping: list[int], coming: list[int], kept: list[int]) -> list[int]:
    if run.lease_state is _NEXT:
        return coming
    if run.lease_state is _PENDING:
        return [0, 0] if going else kept
    return stopping if going else live
