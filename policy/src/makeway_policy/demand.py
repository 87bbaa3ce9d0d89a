"""The demand that `frag` weighs fragmentation by: the shapes of the last submitted jobs, and what they make of nodes.

Kept by the index and told of every job that comes. Amounts for equal nodes are computed once, until the demand is
taken anew, which is after every `_RENEWED_EVERY` submissions and more often while few have come. So the cost of a
choice follows the nodes that have changed since: of the others it is known what they weigh.
"""

import math
from collections import deque
from collections.abc import Iterable

from makeway_policy import placement
from makeway_policy.card_room import CardRoom
from makeway_policy.fragmentation import CARD_MILLI, WINDOW, Left, Want, demand_of, fragmentation, growth_steps
from makeway_policy.model import Gpu, Job, LeaseKind, Member, Shape
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy

_RENEWED_EVERY = 250

_MOST_KEPT = 200_000
"""So many amounts are kept at most, then they are forgotten and computed again as asked for."""

Kind = tuple[str, int, int, str | None, float, int]
"""What distinguishes nodes for a shape: card type, MiB, slots, MIG profile; CPUs and number of cards."""

_Profile = tuple[Kind, tuple[tuple[int, int, int, str, int], ...], float]


class Demand:
    """The shapes of the last jobs in the order of their admission."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._shapes: deque[Shape] = deque(maxlen=WINDOW)
        self._newest = 0
        self._come = 0
        self._wants: dict[Kind, tuple[Want, ...]] = {}
        self._amounts: dict[tuple[Kind, Left], float] = {}
        self._growths: dict[Shape, dict[int, int]] = {}
        self._numbers: dict[_Profile, int] = {}
        self._given = 0
        self._profiles: dict[str, tuple[NodeRoom, int]] = {}

    def submitted(self, jobs: Iterable[Job]) -> None:
        """Take note of the jobs that have not been noted yet."""
        for job in sorted((job for job in jobs if job.order > self._newest), key=lambda job: job.order):
            self._note(job)

    def _note(self, job: Job) -> None:
        self._newest = job.order
        self._shapes.append(job.shape)
        self._come += 1
        young = self._come < WINDOW and self._come & (self._come - 1) == 0
        if young or self._come % _RENEWED_EVERY == 0:
            self._forget()

    def _forget(self) -> None:
        self._wants.clear()
        self._amounts.clear()
        self._growths.clear()

    def profile(self, room: NodeRoom) -> int:
        """A number that equal nodes share: what fits one fits the other, CPU and memory aside, and weighs the same.

        Found anew where a node has changed.
        """
        kept = self._profiles.get(room.node.node_id)
        if kept is not None and kept[0] is room:
            return kept[1]
        cards = sorted(
            (_milli(card), card.vram_now, card.slots_now, "+".join(sorted(card.kinds_now)), card.gpu.vram_mib)
            for card in room.cards
        )
        profile = (_kind(room), tuple(cards), room.cpus_now)
        number = self._numbers.get(profile)
        if number is None:
            if len(self._numbers) >= _MOST_KEPT:
                self._numbers.clear()  # none is given twice, so what is remembered of an old one never misleads
            self._given += 1
            number = self._numbers[profile] = self._given
        self._profiles[room.node.node_id] = (room, number)
        return number

    def growths(self, shape: Shape) -> dict[int, int]:
        """How much fragmentation grows with one member of the shape, by profile; whoever finds one adds it."""
        return self._growths.setdefault(shape, {})

    def growth(self, room: NodeRoom, member: Member, *, later: bool = False) -> int:
        """How much fragmentation grows, in steps, if the member is placed on the node, now or `later`, once what is
        leaving has left."""
        if not room.cards:
            return 0
        taken = {lease.gpu_id: (lease.vram_mib, lease.slots) for lease in member.leases}
        cards = [(card.gpu, _milli(card, later=later)) for card in room.cards]
        cpus = room.cpus_later if later else room.cpus_now
        left = [
            milli - min(milli, _part(gpu, *taken[gpu.gpu_id])) if gpu.gpu_id in taken else milli for gpu, milli in cards
        ]
        before = self._amount(room, [milli for _, milli in cards], cpus)
        return growth_steps(before, self._amount(room, left, cpus - member.cpus))

    def _amount(self, room: NodeRoom, cards: Iterable[int], cpus: float) -> float:
        key = (_kind(room), Left(cards=tuple(sorted(cards)), cpus=cpus))
        if key not in self._amounts:
            if len(self._amounts) >= _MOST_KEPT:
                self._forget()
            self._amounts[key] = fragmentation(self._wanted(key[0], room), key[1])
        return self._amounts[key]

    def _wanted(self, kind: Kind, room: NodeRoom) -> tuple[Want, ...]:
        if kind not in self._wants:
            self._wants[kind] = demand_of(self._want(shape, room) for shape in self._shapes)
        return self._wants[kind]

    def _want(self, shape: Shape, room: NodeRoom) -> Want:
        gpu = room.cards[0].gpu
        if shape.gpus == 0 or not placement.suits(gpu, shape, self._policy):
            return Want(gpus=0, milli=0, cpus=0.0, weight=1.0)
        cpus = placement.host_share(room, shape)[0] if room.node.cpus else 0.0
        asked = (shape.vram_mib or 0, shape.shares or 1)
        whole = placement.kind_of(shape) is LeaseKind.WHOLE
        return Want(gpus=shape.gpus, milli=CARD_MILLI if whole else _part(gpu, *asked), cpus=cpus, weight=1.0)


def _kind(room: NodeRoom) -> Kind:
    if not room.cards:
        return ("", 0, 0, None, room.node.cpus, 0)
    gpu = room.cards[0].gpu
    return (gpu.type_name, gpu.vram_mib, gpu.slots, gpu.mig_profile, room.node.cpus, room.gpu_count)


def _milli(card: CardRoom, *, later: bool = False) -> int:
    """Thousandths of the card that are left now, or once what is leaving has left."""
    gpu = card.gpu
    vram, slots, kinds = (
        (card.vram_later, card.slots_later, card.kinds_later)
        if later
        else (card.vram_now, card.slots_now, card.kinds_now)
    )
    if not kinds:
        return CARD_MILLI
    if LeaseKind.WHOLE in kinds or slots <= 0:
        return 0
    if LeaseKind.SIZED in kinds:
        return max(0, CARD_MILLI * vram // max(1, gpu.vram_mib))
    return CARD_MILLI * slots // max(1, gpu.slots)


def _part(gpu: Gpu, vram_mib: int, slots: int) -> int:
    """Thousandths of the card that a lease takes."""
    if slots >= gpu.slots or not vram_mib:
        return math.ceil(CARD_MILLI * min(slots, gpu.slots) / max(1, gpu.slots))
    return math.ceil(CARD_MILLI * vram_mib / max(1, gpu.vram_mib))
