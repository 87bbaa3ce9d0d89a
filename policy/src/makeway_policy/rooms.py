"""How much room a card and a node have: now, and later, when what is leaving has left.

A run is *leaving* when its stop is decided, whatever state its leases have. Now: LIVE and LEAVING fit the card, and so
do LIVE and NEXT, so a run that starts at once needs what both leave over. Later: what stays (LIVE), is to come (NEXT)
and is kept (PENDING) must fit together with the newcomer.
"""

from collections.abc import Collection, Iterable, Sequence

from makeway_policy.copies import changed, value
from makeway_policy.model import Gpu, GpuHealth, Lease, LeaseKind, LeaseState, Member, Node, Run
from makeway_policy.state import PoolState, is_leaving

_ENDLESS = float("inf")
_NOT_COUNTED = (_ENDLESS, _ENDLESS, _ENDLESS, _ENDLESS)
_NO_KINDS: frozenset[LeaseKind] = frozenset()
_KINDS = {kind: frozenset({kind}) for kind in LeaseKind}


@value(frozen=True, kw_only=True, slots=True)
class CardRoom:
    """What is left of one GPU. `kinds` are the kinds of leases on it, which never mix.

    `leaving` are the runs on it that are going (a card whose room now suffices need not wait for them), `staying` those
    that are not, `runs` all of them.
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


@value(frozen=True, kw_only=True, slots=True)
class NodeRoom:
    """What is left of one node; `cards` by index, `leaving` the runs that are going, the soonest first (where the node
    counts neither CPU nor memory, those that have a card).

    `uniform` says that all cards are of one kind, so that what suits one suits all. CPU and memory of a node that does
    not count them are infinite.
    """

    node: Node
    cards: tuple[CardRoom, ...]
    cpus_now: float
    memory_now: float
    cpus_later: float
    memory_later: float
    gpu_count: int
    leaving: tuple[Run, ...]
    hosts_runs: bool
    uniform: bool


def grew(old: NodeRoom, new: NodeRoom) -> bool:
    """Whether there is more room of any kind than before."""
    if new.node != old.node or new.gpu_count != old.gpu_count or len(new.cards) != len(old.cards):
        return True
    if new.cpus_now > old.cpus_now or new.cpus_later > old.cpus_later:
        return True
    if new.memory_now > old.memory_now or new.memory_later > old.memory_later:
        return True
    return any(
        after is not before
        and (
            after.vram_now > before.vram_now
            or after.slots_now > before.slots_now
            or after.vram_later > before.vram_later
            or after.slots_later > before.slots_later
            or after.kinds_now != before.kinds_now
            or after.kinds_later != before.kinds_later
            or after.gpu is not before.gpu
        )
        for before, after in zip(old.cards, new.cards, strict=True)
    )


def takes_placements(node: Node) -> bool:
    """Whether anything new may be placed on the node."""
    return node.takes_placements


def lease_kind(gpu: Gpu, lease: Lease) -> LeaseKind:
    """Whole card, sized share, or slots without a size."""
    if lease.slots >= gpu.slots and lease.vram_mib >= gpu.vram_mib:
        return LeaseKind.WHOLE
    return LeaseKind.SIZED if lease.vram_mib else LeaseKind.SLOTS


def node_room(state: PoolState, node: Node) -> NodeRoom:
    """The node's room as things are."""
    usable = sorted(
        (gpu for gpu in state.gpus_of_node(node.node_id) if gpu.health is GpuHealth.AVAILABLE and not gpu.in_mig_mode),
        key=lambda gpu: (gpu.index, gpu.gpu_id),
    )
    cards = tuple(_card_room(gpu, state.runs_on_gpu(gpu.gpu_id), (), ()) for gpu in usable)
    uniform = len({(gpu.type_name, gpu.vram_mib, gpu.mig_profile) for gpu in usable}) == 1
    return _node_room(state, node, cards, uniform)


def renewed(state: PoolState, before: NodeRoom, moved: Collection[str]) -> NodeRoom:
    """The room of a node whose hardware is as before, and on whose GPUs in `moved` other runs are, or the same anew."""
    cards = tuple(
        [
            _card_room(card.gpu, state.runs_on_gpu(card.gpu.gpu_id), (), ()) if card.gpu.gpu_id in moved else card
            for card in before.cards
        ]
    )
    if _counts(before.node):
        return _node_room(state, before.node, cards, before.uniform)
    return changed(before, cards=cards, leaving=_leaving(cards))


def trial_room(state: PoolState, room: NodeRoom, gone: Collection[str], added: Collection[Member]) -> NodeRoom:
    """The node's room if the runs `gone` were leaving too and `added` (members of the run being placed) were there."""
    node_id = room.node.node_id
    extra = [member for member in added if member.node_id == node_id]
    if not extra and not any(run_id in gone for card in room.cards for run_id in card.staying) and not room.hosts_runs:
        return room
    leases: dict[str, list[Lease]] = {}
    for member in extra:
        for lease in member.leases:
            leases.setdefault(lease.gpu_id, []).append(lease)
    cards = tuple(
        _card_room(card.gpu, card.runs, gone, leases.get(card.gpu.gpu_id, ()))
        if card.gpu.gpu_id in leases or any(run_id in gone for run_id in card.staying)
        else card
        for card in room.cards
    )
    return _node_room(state, room.node, cards, room.uniform, gone, extra)


def _node_room(
    state: PoolState,
    node: Node,
    cards: tuple[CardRoom, ...],
    uniform: bool,
    gone: Collection[str] = (),
    added: Collection[Member] = (),
) -> NodeRoom:
    if _counts(node):
        runs = state.runs_on_node(node.node_id)
        host = _host_room(node, runs, gone, added)
        leaving = _soonest_first([run for run in runs if is_leaving(run) or run.run_id in gone])
    else:
        runs, host, leaving = (), _NOT_COUNTED, _leaving(cards)
    return NodeRoom(
        node=node,
        cards=cards,
        cpus_now=host[0],
        memory_now=host[1],
        cpus_later=host[2],
        memory_later=host[3],
        gpu_count=len(state.gpu_ids_of_node(node.node_id)),
        leaving=leaving,
        hosts_runs=bool(runs),
        uniform=uniform,
    )


def _counts(node: Node) -> bool:
    """Whether CPU or memory of the node is counted, so that runs matter which have no GPU there."""
    return bool(node.cpus or node.memory_mib)


def _leaving(cards: Iterable[CardRoom]) -> tuple[Run, ...]:
    """The runs that are going from any of the cards, the soonest first."""
    going = {run.run_id: run for card in cards if card.leaving for run in card.runs if run.run_id in card.leaving}
    return _soonest_first(going.values()) if going else ()


def _soonest_first(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: (_ENDLESS if run.leaves_by is None else run.leaves_by, run.run_id)))


def _card_room(gpu: Gpu, runs: tuple[Run, ...], gone: Collection[str], added: Collection[Lease]) -> CardRoom:
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
                if run.lease_state is LeaseState.NEXT:
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
        leases = [lease for lease in leases if lease.gpu_id == gpu.gpu_id]
    if len(leases) != 1 or run.moves_to or run.lease_state not in (LeaseState.LIVE, LeaseState.LEAVING):
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
    if run.lease_state is LeaseState.NEXT:
        return coming
    if run.lease_state is LeaseState.PENDING:
        return [0, 0] if going else kept
    return stopping if going else live


def _host_room(
    node: Node, runs: tuple[Run, ...], gone: Collection[str], added: Collection[Member]
) -> tuple[float, float, float, float]:
    cpus = [0.0, 0.0, 0.0]
    memory = [0, 0, 0]
    for run in runs:
        going = is_leaving(run) or run.run_id in gone
        place = 1 if going else 0 if run.lease_state is LeaseState.LIVE else 2
        for member in run.members:
            if member.node_id == node.node_id:
                cpus[place] += member.cpus
                memory[place] += member.memory_mib
        for member in run.moves_to:
            if member.node_id == node.node_id:
                cpus[2] += member.cpus
                memory[2] += member.memory_mib
    for member in added:
        cpus[0] += member.cpus
        memory[0] += member.memory_mib
    cpus_total = node.cpus or _ENDLESS
    memory_total = node.memory_mib or _ENDLESS
    return (
        cpus_total - cpus[0] - max(cpus[1], cpus[2]),
        memory_total - memory[0] - max(memory[1], memory[2]),
        cpus_total - cpus[0] - cpus[2],
        memory_total - memory[0] - memory[2],
    )
