"""Where a job fits: filter nodes and cards, then score.

Order of checks of the filter (the first that fails is the reason shown):
 1. the node takes placements (heard, not cordoned), and the job does not avoid it
 2. the job's own node lists and labels
 3. GPU type (in full, any case, or a documented alias), MIG profile, card size
 4. room on enough cards: whole, MiB or slots, which never mix on a card
 5. topology
 6. CPU and memory

Scores: what the job likes by label comes first (`affinity`). Then binpack takes the node with the fewest fitting cards
left, spread the one with most, frag the one whose fragmentation grows least; ties end in node id. Inside a node: the
tightest card, NVLink groups kept whole, neighbours together; ties end in GPU index.
"""

from collections.abc import Sequence

from makeway_policy.card_room import CardRoom
from makeway_policy.copies import value
from makeway_policy.model import Gpu, Job, Lease, LeaseKind, Member, Node, Shape, Topology
from makeway_policy.rooms import NodeRoom, takes_placements
from makeway_policy.rules import Policy, Strategy

_WHOLE = LeaseKind.WHOLE
_ANY = Topology.ANY
_REQUIRE = Topology.REQUIRE

_ENDLESS = float("inf")
_ROUNDING = 1e-9

OfCard = tuple[str | None, int, int | None, int | None, str | None, bool]
"""What a request wants of each of its cards: see `of_card`."""


@value(frozen=True, kw_only=True, slots=True)
class Fit:
    """One member placed on one node. `after` are the leaving runs that must be gone first (empty: it can start now)."""

    member: Member
    after: frozenset[str]


def kind_of(shape: Shape) -> LeaseKind:
    """What kind of leases the shape takes."""
    if shape.vram_mib is not None:
        return LeaseKind.SIZED
    return LeaseKind.SLOTS if shape.shares is not None else _WHOLE


def of_card(shape: Shape) -> OfCard:
    """What decides which cards suit the shape, and which of them have room for one GPU of it."""
    return (shape.gpu_type, shape.min_vram_mib, shape.vram_mib, shape.shares, shape.mig, shape.gpus == 0)


def suits(gpu: Gpu, shape: Shape, policy: Policy) -> bool:
    """Whether the card could serve the shape if it were empty: type, size, MIG profile."""
    if (gpu.mig_profile or None) != (shape.mig or None):
        return False
    if gpu.vram_mib < max(shape.min_vram_mib, shape.vram_mib or 0):
        return False
    if shape.gpu_type is None:
        return True
    names = names_of(shape.gpu_type, policy)
    return names is None or gpu.type_name.casefold() in names


def suitable(room: NodeRoom, shape: Shape, policy: Policy) -> Sequence[CardRoom]:
    """The cards of a node that suit the shape, whatever is on them."""
    if room.uniform and room.cards:
        return room.cards if suits(room.cards[0].gpu, shape, policy) else ()
    return [card for card in room.cards if suits(card.gpu, shape, policy)]


def names_of(gpu_type: str | None, policy: Policy) -> frozenset[str] | None:
    """All type names, folded, that a request's type stands for; None for any."""
    if gpu_type is None:
        return None
    wanted = gpu_type.casefold()
    meant = [names for alias, names in policy.gpu_aliases.items() if alias.casefold() == wanted]
    return frozenset([wanted, *(name.casefold() for names in meant for name in names)])


def node_allows(node: Node, job: Job) -> bool:
    """Checks 1 and 2: the node takes placements, and the job's lists and labels allow it."""
    if not takes_placements(node) or node.node_id in job.avoid_nodes:
        return False
    if job.resume_node is not None and node.node_id != job.resume_node:
        return False
    return node_admits(node, job.shape)


def node_admits(node: Node, shape: Shape) -> bool:
    """Whether the job's node lists and labels allow the node, whatever its health."""
    if shape.nodes and node.node_id not in shape.nodes:
        return False
    if node.node_id in shape.exclude_nodes:
        return False
    return all(node.labels.get(key) == value for key, value in shape.labels)


def fit(room: NodeRoom, job: Job, policy: Policy, strategy: Strategy, *, later: bool) -> Fit | None:
    """Place one member of the job on the node, now or once what is leaving has left; None if it does not fit."""
    if not node_allows(room.node, job):
        return None
    shape = job.shape
    cards = _with_place(suitable(room, shape, policy), shape, later=later)
    if job.avoid_gpus:
        cards = [card for card in cards if card.gpu.gpu_id not in job.avoid_gpus]
    chosen = _choose(cards, shape, strategy, later)
    if chosen is None:
        return None
    cpus, memory_mib = host_share(room, shape)
    cpus_left, memory_left = (room.cpus_later, room.memory_later) if later else (room.cpus_now, room.memory_now)
    if cpus > cpus_left + _ROUNDING or memory_mib > memory_left:
        return None
    after: set[str] = set()
    for card in chosen:
        if later and not _has_place(card, shape, later=False):
            after.update(card.leaving)
    if later:
        after = _with_host_room(room, after, cpus, memory_mib)
    leases = tuple(_lease(card.gpu, shape) for card in chosen)
    member = Member(node_id=room.node.node_id, leases=leases, cpus=cpus, memory_mib=memory_mib)
    return Fit(member=member, after=frozenset(after))


def _with_host_room(room: NodeRoom, after: set[str], cpus: float, memory_mib: int) -> set[str]:
    """`after`, and as many more of those that are going as it takes until CPU and memory suffice, the soonest first."""
    cpus_now, memory_now = room.cpus_now, room.memory_now
    chosen = set(after)
    for run in sorted(room.leaving, key=lambda run: run.run_id not in after):
        if run.run_id not in after:
            if cpus <= cpus_now + _ROUNDING and memory_mib <= memory_now:
                break
            chosen.add(run.run_id)
        here = [member for member in run.members if member.node_id == room.node.node_id]
        cpus_now += sum(member.cpus for member in here)
        memory_now += sum(member.memory_mib for member in here)
    return chosen


def fitting_cards(room: NodeRoom, shape: Shape, policy: Policy, *, later: bool) -> int:
    """How many cards of the node could serve one GPU of the shape."""
    return len(_with_place(suitable(room, shape, policy), shape, later=later))


def host_share(room: NodeRoom, shape: Shape) -> tuple[float, int]:
    """(CPUs, MiB of memory) of one member: what it asks for, else its GPUs' part of the node."""
    part = shape.gpus / max(1, room.gpu_count) if kind_of(shape) is _WHOLE else 0.0
    cpus = shape.cpus if shape.cpus is not None else room.node.cpus * min(1.0, part)
    memory = shape.memory_mib if shape.memory_mib is not None else int(room.node.memory_mib * min(1.0, part))
    return cpus, memory


def only_cards_count(room: NodeRoom, shape: Shape) -> bool:
    """Whether the shape, of whole cards that suit it, has room on the node wherever enough of its cards are free.

    A card is as good as any other, then, and free as soon as the one run on it has left; CPU and memory go with cards.
    """
    if not room.uniform or room.leaving or any(len(card.runs) > 1 for card in room.cards):
        return False
    return not (room.node.cpus or room.node.memory_mib) or _host_goes_with_cards(room, shape)


def _host_goes_with_cards(room: NodeRoom, shape: Shape) -> bool:
    """Whether no run there, nor the shape, takes more of CPU and memory than its cards' part of the node."""
    node, cpus, memory_mib = room.node, *host_share(room, shape)
    runs = {run.run_id: run for card in room.cards for run in card.runs}
    members = [member for run in runs.values() for member in run.members if member.node_id == node.node_id]
    card_cpus, card_memory = (node.cpus or _ENDLESS) / room.gpu_count, (node.memory_mib or _ENDLESS) / room.gpu_count
    parts = [(cpus, memory_mib, shape.gpus), *[(each.cpus, each.memory_mib, len(each.leases)) for each in members]]
    if any(part[0] > card_cpus * part[2] + _ROUNDING or part[1] > card_memory * part[2] for part in parts):
        return False
    # Runs without any of these cards take nothing.
    cpus_left = node.cpus - sum([each.cpus for each in members])
    memory_left = node.memory_mib - sum([each.memory_mib for each in members])
    return room.cpus_later >= cpus_left - _ROUNDING and room.memory_later >= memory_left


def takes(card: CardRoom, shape: Shape, policy: Policy, *, later: bool) -> bool:
    """Whether the card could serve one GPU of the shape, now or once what is leaving has left."""
    return suits(card.gpu, shape, policy) and _has_place(card, shape, later=later)


def _with_place(cards: Sequence[CardRoom], shape: Shape, *, later: bool) -> list[CardRoom]:
    """Those of the cards, all of which suit the shape, that have room for one GPU of it."""
    if kind_of(shape) is not _WHOLE:
        return [card for card in cards if _has_place(card, shape, later=later)]
    if later:
        return [card for card in cards if not card.kinds_later]
    return [card for card in cards if not card.kinds_now]


def _has_place(card: CardRoom, shape: Shape, *, later: bool) -> bool:
    """Whether a card that suits the shape has room for one GPU of it."""
    vram, slots, kinds = (
        (card.vram_later, card.slots_later, card.kinds_later)
        if later
        else (card.vram_now, card.slots_now, card.kinds_now)
    )
    kind = kind_of(shape)
    if kind is _WHOLE:
        return not kinds
    if kinds - {kind}:
        return False
    return slots >= (shape.shares or 1) and vram >= (shape.vram_mib or 0)


def _lease(gpu: Gpu, shape: Shape) -> Lease:
    kind = kind_of(shape)
    if kind is _WHOLE:
        return Lease(gpu_id=gpu.gpu_id, vram_mib=gpu.vram_mib, slots=gpu.slots)
    return Lease(gpu_id=gpu.gpu_id, vram_mib=shape.vram_mib or 0, slots=shape.shares or 1)


def _choose(cards: Sequence[CardRoom], shape: Shape, strategy: Strategy, later: bool) -> list[CardRoom] | None:
    if len(cards) < shape.gpus:
        return None
    if kind_of(shape) is not _WHOLE:
        return sorted(cards, key=lambda card: _tightness(card, strategy, later))[: shape.gpus]
    return _choose_whole(cards, shape, later)


def _tightness(card: CardRoom, strategy: Strategy, later: bool) -> tuple[int, int, int, int, str]:
    vram, slots = (card.vram_later, card.slots_later) if later else (card.vram_now, card.slots_now)
    sign = -1 if strategy is Strategy.SPREAD else 1
    waits = 1 if later and card.leaving else 0
    return (waits, sign * vram, sign * slots, card.gpu.index, card.gpu.gpu_id)


def _choose_whole(cards: Sequence[CardRoom], shape: Shape, later: bool) -> list[CardRoom] | None:
    if shape.gpus == 0:
        return []
    if shape.topology is _ANY:
        return sorted(cards, key=lambda card: (_waits(card, later), *_card_key(card)))[: shape.gpus]
    groups: dict[int | None, list[CardRoom]] = {}
    for card in cards:
        groups.setdefault(card.gpu.link_group, []).append(card)
    if shape.topology is _REQUIRE and shape.gpus > 1:
        groups.pop(None, None)
    if [len(group) for group in groups.values()] == [shape.gpus]:
        return next(iter(groups.values()))
    windows = [
        _window(group[start : start + shape.gpus], len(group), later)
        for group in groups.values()
        for start in range(len(group) - shape.gpus + 1)
    ]
    if windows:
        return list(min(windows, key=lambda window: window[0])[1])
    if shape.topology is _REQUIRE:
        return None
    largest_first = sorted(groups.values(), key=lambda group: (-len(group), group[0].gpu.index))
    return [card for group in largest_first for card in group][: shape.gpus]


def _window(cards: Sequence[CardRoom], group_size: int, later: bool) -> tuple[tuple[object, ...], Sequence[CardRoom]]:
    waits = sum([_waits(card, later) for card in cards]) if later else 0
    size = sum([card.gpu.vram_mib for card in cards])
    span = cards[-1].gpu.index - cards[0].gpu.index
    return (waits, size, group_size, span, cards[0].gpu.index, cards[0].gpu.gpu_id), cards


def _waits(card: CardRoom, later: bool) -> int:
    return 1 if later and card.leaving else 0


def _card_key(card: CardRoom) -> tuple[int, int, str]:
    return (card.gpu.vram_mib, card.gpu.index, card.gpu.gpu_id)
