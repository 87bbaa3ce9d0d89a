"""The demand that `frag` weighs fragmentation by: the shapes of the last submitted jobs, and what they make of nodes.

Kept by the index and told of every job that comes. Amounts for equal nodes are computed once, until the demand is
taken anew, which is after every `_RENEWED_EVERY` submissions and more often while few have come.
"""

import math
from collections import deque
from collections.abc import Iterable

from makeway_policy import placement
from makeway_policy.fragmentation import CARD_MILLI, WINDOW, Left, Want, demand_of, growth_steps
from makeway_policy.model import Gpu, Job, LeaseKind, Member, Shape
from makeway_policy.rooms import CardRoom, NodeRoom
from makeway_policy.rules import Policy

_RENEWED_EVERY = 250

Kind = tuple[str, int, int, str | None, float, int]
"""What distinguishes nodes for a shape: card type, MiB, slots, MIG profile; CPUs and number of cards."""


class Demand:
    """The shapes of the last jobs in the order of their admission."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._shapes: deque[Shape] = deque(maxlen=WINDOW)
        self._newest = 0
        self._come = 0
        self._wants: dict[Kind, tuple[Want, ...]] = {}
        self._growth: dict[tuple[Kind, Left, Left], int] = {}

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
            self._wants.clear()
            self._growth.clear()

    def profile(self, room: NodeRoom) -> tuple[Kind, Left] | None:
        """What a node is for the demand; equal nodes have equal profiles. None for a node without cards."""
        if not room.cards:
            return None
        gpu = room.cards[0].gpu
        kind = (gpu.type_name, gpu.vram_mib, gpu.slots, gpu.mig_profile, room.node.cpus, room.gpu_count)
        return kind, Left(cards=tuple(_milli(card) for card in room.cards), cpus=room.cpus_now)

    def growth(self, room: NodeRoom, member: Member) -> int:
        """How much fragmentation grows, in steps, if the member is placed on the node now."""
        found = self.profile(room)
        if found is None:
            return 0
        kind, before = found
        taken = {lease.gpu_id: (lease.vram_mib, lease.slots) for lease in member.leases}
        cards = tuple(
            milli - min(milli, _part(card.gpu, *taken[card.gpu.gpu_id])) if card.gpu.gpu_id in taken else milli
            for card, milli in zip(room.cards, before.cards, strict=True)
        )
        after = Left(cards=cards, cpus=before.cpus - member.cpus)
        key = (kind, before, after)
        if key not in self._growth:
            self._growth[key] = growth_steps(self._wanted(kind, room), before, after)
        return self._growth[key]

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


def _milli(card: CardRoom) -> int:
    """Thousandths of the card that are left now."""
    gpu = card.gpu
    if not card.kinds_now:
        return CARD_MILLI
    if LeaseKind.WHOLE in card.kinds_now or card.slots_now <= 0:
        return 0
    if LeaseKind.SIZED in card.kinds_now:
        return max(0, CARD_MILLI * card.vram_now // max(1, gpu.vram_mib))
    return CARD_MILLI * card.slots_now // max(1, gpu.slots)


def _part(gpu: Gpu, vram_mib: int, slots: int) -> int:
    """Thousandths of the card that a lease takes."""
    if slots >= gpu.slots or not vram_mib:
        return math.ceil(CARD_MILLI * min(slots, gpu.slots) / max(1, gpu.slots))
    return math.ceil(CARD_MILLI * vram_mib / max(1, gpu.vram_mib))
