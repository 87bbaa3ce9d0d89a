"""How much room a node has, on its cards (see `card_room`) and of CPU and memory: now, and later."""

from collections.abc import Collection, Iterable, Sequence

from makeway_policy.card_room import CardRoom, card_room
from makeway_policy.copies import changed, value
from makeway_policy.model import GpuHealth, Lease, LeaseState, Member, Node, Run
from makeway_policy.state import PoolState, is_leaving

_ENDLESS = float("inf")
_NOT_COUNTED = (_ENDLESS, _ENDLESS, _ENDLESS, _ENDLESS)


@value(frozen=True, kw_only=True, slots=True)
class NodeRoom:
    """What is left of one node.

    `cards` are by index, `gpu_ids` theirs (the same tuple as long as the hardware is the same), `free` is how many of
    them have nothing on them now. `leaving` are the runs that are going, the soonest first (where the node counts
    neither CPU nor memory, those that have a card). `uniform` says that all cards are of one kind, so that what suits
    one suits all. CPU and memory of a node that does not count them are infinite.
    """

    node: Node
    cards: tuple[CardRoom, ...]
    gpu_ids: tuple[str, ...]
    free: int
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
    if new.node is not old.node and new.node != old.node:
        return True
    if new.gpu_count != old.gpu_count or len(new.cards) != len(old.cards):
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


def node_room(state: PoolState, node: Node) -> NodeRoom:
    """The node's room as things are."""
    usable = sorted(
        (gpu for gpu in state.gpus_of_node(node.node_id) if gpu.health is GpuHealth.AVAILABLE and not gpu.in_mig_mode),
        key=lambda gpu: (gpu.index, gpu.gpu_id),
    )
    cards = tuple(card_room(gpu, state.runs_on_gpu(gpu.gpu_id)) for gpu in usable)
    uniform = len({(gpu.type_name, gpu.vram_mib, gpu.mig_profile) for gpu in usable}) == 1
    return _node_room(state, node, cards, uniform)


def renewed(state: PoolState, before: NodeRoom, moved: Collection[str]) -> NodeRoom:
    """The room of a node whose hardware is as before, and on whose GPUs in `moved` other runs are, or the same anew."""
    anew = list(before.cards)
    free, going = before.free, bool(before.leaving)
    for gpu_id in moved:
        if gpu_id in before.gpu_ids:
            place = before.gpu_ids.index(gpu_id)
            old = anew[place]
            new = anew[place] = card_room(old.gpu, state.runs_on_gpu(gpu_id))
            free += (not new.kinds_now) - (not old.kinds_now)
            going = going or bool(new.leaving)
    cards = tuple(anew)
    if _counts(before.node):
        return changed(_node_room(state, before.node, cards, before.uniform), gpu_ids=before.gpu_ids)
    return changed(before, cards=cards, free=free, leaving=_leaving(cards) if going else ())


def with_cards(room: NodeRoom, cards: Sequence[CardRoom]) -> NodeRoom:
    """The node's room if it had only these of its cards."""
    gpu_ids = tuple([card.gpu.gpu_id for card in cards])
    return changed(room, cards=tuple(cards), gpu_ids=gpu_ids, free=sum([card.empty_now for card in cards]))


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
        card_room(card.gpu, card.runs, gone, leases.get(card.gpu.gpu_id, ()))
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
        gpu_ids=tuple([card.gpu.gpu_id for card in cards]),
        free=sum([card.empty_now for card in cards]),
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
