"""Where to look for victims: the nodes within a job's reach, most promising first."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from makeway_policy import placement, priority, quota
from makeway_policy.lately import Lately
from makeway_policy.model import Job, LeaseKind, Shape
from makeway_policy.out_of_reach import OutOfReach, kind_of_request
from makeway_policy.question import Question
from makeway_policy.queue import WaitingQueue
from makeway_policy.reach import OUT_OF_REACH, NodeReach, Threshold
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState, is_leaving
from makeway_policy.taking import Taking
from makeway_policy.victim_nodes import Host, VictimNodes

_WHOLE = LeaseKind.WHOLE

_ENDLESS = float("inf")
_ANYBODY: Threshold = (1e300, _ENDLESS, _ENDLESS)
_OFFERS_KEPT = 256
"""Of more offers than so many nothing is known node by node: all nodes are searched, which costs no more."""
_LEFT_STALE = 128
_LEFT_FILLED = 64
"""So many nodes may have changed, or only been filled, when a decision ends: nobody may wait for more of them."""
_OWN_NODES = 64
"""A job over its quota looks at so many nodes of its own team's runs, lowest v first."""


class Hosts:
    """The nodes that preemptors look at; brought up to date when asked."""

    def __init__(
        self,
        state: PoolState,
        policy: Policy,
        queue: WaitingQueue,
        nodes: tuple[dict[str, NodeRoom], dict[str, NodeReach]],
        reach_of_filled: Callable[[str], None],
    ) -> None:
        self.state = state
        self.policy = policy
        self.queue = queue
        self._rooms, self.reaches = nodes
        self._reach_of_filled = reach_of_filled
        self.offers = Lately(_OFFERS_KEPT)
        self._filled: dict[str, bool] = {}
        self._once_filled: dict[str, list[Threshold]] = {}
        self._out_of_reach = OutOfReach()
        self._victim_nodes = VictimNodes(policy, self.reaches, self.reaches.get)

    def node_changed(self, node_id: str) -> None:
        """What a node has to offer is known, and may be more than before."""
        self._out_of_reach.node_changed(node_id)
        self._victim_nodes.nodes_changed((node_id,))

    def filled(self, node_id: str, *, guarded: bool) -> None:
        """A node has less to offer than is noted: how much is found out when somebody asks for it.

        `guarded`: whoever came or started there is protected from all who do not override minimum runs.
        """
        # What was filled last is last: it is about to start, and that fills it again.
        self._filled[node_id] = guarded and self._filled.pop(node_id, True)
        self._once_filled.pop(node_id, None)
        if not guarded:
            self._out_of_reach.node_changed(node_id)

    def is_filled(self, node_id: str) -> bool:
        """Whether a node has less to offer than is noted."""
        return node_id in self._filled

    def forget_filled(self, node_id: str) -> bool:
        """What a node has to offer is known again, or it is gone. Returns whether it was not known."""
        if node_id in self._filled:
            del self._filled[node_id]
            self._once_filled.pop(node_id, None)
            return True
        return False

    def tidy(self, now: float) -> None:
        """Look at what has changed, where it is so much that the next who asks would wait for it."""
        for node_id in tuple(self._filled)[: max(0, len(self._filled) - _LEFT_FILLED)]:
            self.reach_of(node_id)
        if len(self._victim_nodes.stale) > _LEFT_STALE:
            self._victim_nodes.refresh()
        self._victim_nodes.keep_up(now)

    def reach_of(self, node_id: str) -> NodeReach | None:
        """What a node has to offer as things are; None if it is gone."""
        if self._filled and self.forget_filled(node_id):
            self._reach_of_filled(node_id)
            self._victim_nodes.nodes_changed((node_id,))
        return self.reaches.get(node_id)

    def limit_of(self, job: Job, now: float) -> Threshold | None:
        """How far the job may ever reach for victims while it waits; None if it may take none.

        A team's guarantee reaches anybody, as soon as the team is within it with the job.
        """
        if self.policy.preemption and self.state.team(job.team).guarantee > 0:
            return _ANYBODY
        return self._by_priority(job, now)

    def limit_now(self, job: Job, now: float) -> Threshold | None:
        """How far the job may reach for victims as things are; None if it may take none."""
        team = self.state.team(job.team)
        if team.guarantee > 0 and quota.within_guarantee(self.state, job, quota.needed_units(job, None, self.state)):
            return _ANYBODY if self.policy.preemption else None
        return self._by_priority(job, now)

    def _by_priority(self, job: Job, now: float) -> Threshold | None:
        if not self.policy.preemption or not priority.may_take_victims(job, self.policy, now):
            return None
        aged = priority.is_aged(job, self.policy, now)
        v = priority.preemption_value(job, self.policy, now) - self.policy.delta
        return (float(v), -job.submitted_at, float(-job.order)) if aged else (float(v), _ENDLESS, _ENDLESS)

    def for_question(self, question: Question, *, over: bool) -> Iterator[Host]:
        """The nodes on which to look for victims, most promising first; `over` its quota, those of its team's runs."""
        job, now = question.preemptor.job, question.now
        limit = self.limit_now(job, now)
        if limit is None:
            return
        overrides = priority.class_of(job, self.policy).overrides_minimum_run
        place = self.queue.place.get(job.job_id)
        offering = None
        if place is not None and place[0].searched == job.job_id and job.shape.members == 1:
            offers = place[0].offers
            offering = None if offers is None else self.offers.since(offers)
        if over:
            own = self._own_hosts(job, limit)
            # Where one run of its team leaves for a gang, its other members may be anywhere.
            others = self._within(job.shape, limit, now, overrides) if job.shape.members > 1 else ()
            mine = {host.node_id for host in own}
            beside = (each for each in others if each.node_id not in mine and self._allows(each.node_id, job))
            found: Iterable[Host] = [*own, *islice(beside, _OWN_NODES)]
        elif offering is not None:
            found = self._as_hosts(offering, job.shape, limit, overrides)
        else:
            taking = Taking(question, limit)
            found = self._within(job.shape, limit, now, overrides, taking)
        for host in found:
            if self._allows(host.node_id, job):
                yield host

    def _allows(self, node_id: str, job: Job) -> bool:
        return placement.node_allows(self.state.nodes[node_id], job)

    def in_reach(self, job: Job, now: float) -> bool:
        """Whether there is any node on which the job could look for victims."""
        limit = self.limit_now(job, now)
        if limit is None:
            return False
        overrides, shape = priority.class_of(job, self.policy).overrides_minimum_run, job.shape

        def is_within(node_id: str, gpus: int, limit: Threshold) -> bool:
            return self.bound_on(node_id, shape, gpus, overrides) <= limit

        kind = kind_of_request(shape, overrides=overrides)
        known = self._out_of_reach.answer(kind, shape.gpus, limit, is_within)
        if known is not None:
            return known
        nodes = self._victim_nodes.perhaps_within(shape, limit, self._filled, overrides=overrides)
        if any(is_within(node_id, shape.gpus, limit) for node_id in nodes):
            return True
        self._out_of_reach.note(kind, shape.gpus, limit)
        return False

    def bound_on(self, node_id: str, shape: Shape, gpus: int, overrides: bool) -> Threshold:
        """What at least has to leave on a node for so many GPUs of the shape."""
        room = self._rooms.get(node_id)
        if room is None or (gpus and room.uniform and not placement.suits(room.cards[0].gpu, shape, self.policy)):
            return OUT_OF_REACH
        whole = gpus > 0 and placement.kind_of(shape) is _WHOLE and not overrides
        if whole and self._filled.get(node_id):
            left = self._left_once_filled(node_id)
            return left[gpus - 1] if len(left) >= gpus else OUT_OF_REACH
        reach = self.reach_of(node_id)
        return OUT_OF_REACH if reach is None else reach.bound_of(shape, gpus, overrides=overrides)

    def _left_once_filled(self, node_id: str) -> list[Threshold]:
        """What has to leave on the cards of a node that only guarded runs have filled."""
        found = self._once_filled.get(node_id)
        if found is None:
            reach = self.reaches.get(node_id)
            found = self._once_filled[node_id] = [] if reach is None else reach.once_filled(self._rooms[node_id])
        return found

    def all_for(self, job: Job) -> Iterator[str]:
        """All nodes on which victims for the job could be."""
        return (node_id for node_id, node in self.state.nodes.items() if placement.node_allows(node, job))

    def _within(
        self, shape: Shape, limit: Threshold, now: float, overrides: bool, taking: Taking | None = None
    ) -> Iterator[Host]:
        self._look_at_filled()
        return self._victim_nodes.within(shape, limit, now, overrides=overrides, taking=taking)

    def _look_at_filled(self) -> None:
        for node_id in tuple(self._filled):
            self.reach_of(node_id)

    def _as_hosts(self, node_ids: Iterable[str], shape: Shape, limit: Threshold, overrides: bool) -> list[Host]:
        found = []
        for node_id in node_ids:
            reach = self.reach_of(node_id)
            bound = OUT_OF_REACH if reach is None else reach.bound(shape, overrides=overrides)
            if bound <= limit:
                found.append(Host(node_id=node_id, v=bound[0], cost=0.0))
        return sorted(found, key=lambda host: (host.v, host.node_id))

    def _own_hosts(self, job: Job, limit: Threshold) -> list[Host]:
        lowest: dict[str, int] = {}
        for run in self.state.runs_of_team(job.team):
            if run.v <= limit[0] and not is_leaving(run):
                for node_id in run.node_ids:
                    if self._allows(node_id, job):
                        lowest[node_id] = min(run.v, lowest.get(node_id, run.v))
        ranked = sorted((v, node_id) for node_id, v in lowest.items())
        return [Host(node_id=node_id, v=float("-inf"), cost=0.0) for _, node_id in ranked[:_OWN_NODES]]
