"""What is said of a job that only nodes or GPUs could run which take no runs now: no wait for others will start it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from makeway_policy.asked import shape_of
from makeway_policy.capacity import never_fits
from makeway_policy.model import Drain, Gpu, GpuHealth, Node, NodeHealth, Reason, Shape
from makeway_policy.placement import node_admits, suits
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState
from makeway_schemas.job_spec import JobSpec
from makeway_schemas.states import NodeState

from makeway_admission.store import Store
from makeway_admission.views import Row, note_of

WAITS_FOR_GPUS: Final = (Reason.NO_ROOM, Reason.RESERVED_FOR_ANOTHER, Reason.BACKING_OFF)
"""The reasons that nodes have anything to do with."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The nodes that could run a job, none of which takes runs, in words; `helps` is what would open each.

    `gpus` are those of open nodes, each of which has too few left without them.
    """

    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    helps: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why the job waits."""
        what = "no node that could run it takes runs now" if not self.gpus else "what could run it takes no runs now"
        return f"{what}: {', '.join(_first((*self.nodes, *self.gpus)))}"

    def instead(self, detail: Mapping[str, Any]) -> dict[str, Any]:
        """A stored explanation without what it says of runs elsewhere: whether they stay or leave changes nothing."""
        cause = "all that could run it takes no runs" if self.gpus else "every node that could run it is closed"
        ahead = {"expected_start": f"none: {cause}", "worst_case_wait": f"unbounded: {cause}"}
        helps = [*_first(self.helps), "another node that has what the job asks for"]
        return {**detail, **ahead, "possible_victims": [], "would_help": helps}


async def closed_to(store: Store, row: Row, policy: Policy) -> Closed | None:
    """What keeps a waiting job (a row of `get_job`) out of all nodes that could run it; None where one takes runs."""
    nodes = await store.list_nodes()
    if all(_node(each).takes_placements and not each["gpus_out"] for each in nodes):
        return None
    shape = shape_of(JobSpec.model_validate_json(json.dumps(row["spec"])))
    return closed_nodes(shape, nodes, await store.list_hardware(), policy)


def closed_nodes(shape: Shape, nodes: Sequence[Row], gpus: Sequence[Row], policy: Policy) -> Closed | None:
    """The same from the rows of nodes and of their GPUs."""
    on_node: defaultdict[str, list[Row]] = defaultdict(list)
    for gpu in gpus:
        on_node[gpu["node_id"]].append(gpu)

    def could_run(row: Row, *, now: bool) -> bool:
        node, cards = _node(row), [_gpu(each) for each in on_node[row["node_id"]] if not (now and _is_out(each))]
        # First what costs little, as it tells of most nodes that they could not.
        if not node_admits(node, shape) or sum(suits(card, shape, policy) for card in cards) < shape.gpus:
            return False
        return never_fits(_alone(node, cards), policy, shape) is None

    # Node by node, as a job has one member: mostly the first open one could run it.
    opened = [each for each in nodes if _node(each).takes_placements]
    if any(could_run(each, now=True) for each in opened):
        return None
    closed = [each for each in nodes if not _node(each).takes_placements and could_run(each, now=False)]
    short = [each["node_id"] for each in opened if could_run(each, now=False)]
    out = [gpu for each in short for gpu in on_node[each] if _comes_back(gpu) and suits(_gpu(gpu), shape, policy)]
    if not closed and not out:
        return None
    helps = (*map(_help, closed), *(f"{_name(each)} in use again" for each in out))
    return Closed(
        nodes=tuple(map(_said, closed)), gpus=tuple(f"{_name(each)} ({_fault(each)})" for each in out), helps=helps
    )


def _alone(node: Node, cards: Sequence[Gpu]) -> PoolState:
    """A pool of one node, with nothing on its GPUs."""
    state = PoolState()
    state.put_node(node)
    for card in cards:
        state.put_gpu(card)
    return state


def _node(row: Row) -> Node:
    return Node(
        node_id=row["node_id"],
        health=NodeHealth(row["state"].lower()),
        cordoned=row["cordoned"],
        drain=Drain(row["drain"]),
        refusal="" if row["accepts_runs"] else row["refusal"] or "it does not say why",
        labels=row["labels"],
        cpus=float(row["cpus"]),
        memory_mib=row["memory_mib"],
    )


def _gpu(row: Row) -> Gpu:
    return Gpu(
        gpu_id=row["gpu_id"],
        node_id=row["node_id"],
        index=row["gpu_index"],
        type_name=row["type_name"],
        vram_mib=row["capacity_mib"],
        slots=row["capacity_slots"],
        health=GpuHealth.LOST if row["condition"] == "lost" else GpuHealth.AVAILABLE,
        mig_profile=row["mig_profile"],
    )


def _is_out(gpu: Row) -> bool:
    """Whether it takes no new runs now."""
    return bool(gpu["condition"] != "ok" or gpu["cordoned"])


def _comes_back(gpu: Row) -> bool:
    """Whether it is out of use for a time: a MIG instance that its node does not report any more is gone."""
    return _is_out(gpu) and not (gpu["mig_profile"] and gpu["condition"] == "lost")


def _name(gpu: Row) -> str:
    return f"GPU {gpu['gpu_index']} of {gpu['node_id']}"


def _fault(gpu: Row) -> str:
    return str(gpu["reason"] or ("cordoned" if gpu["condition"] == "ok" else gpu["condition"]))


def _said(row: Row) -> str:
    """A node and why it takes no runs, with since when where that is known."""
    since = f"since {row['state_since'].astimezone(UTC).isoformat(timespec='seconds')}"
    if row["state"] == NodeState.DEAD:
        why = f"{note_of(row) or 'declared dead'}, {since}"
    elif row["state"] == NodeState.UNKNOWN:
        why = f"nothing is heard of it {since}"
    elif row["cordoned"]:
        why = note_of(row) or "cordoned"
    else:
        why = f"takes no runs: {_node(row).refusal}"
    return f"{row['node_id']} ({why})"


def _help(row: Row) -> str:
    if row["state"] != NodeState.READY:
        return f"{row['node_id']} being heard again"
    return f"{row['node_id']} {'being opened again (node uncordon)' if row['cordoned'] else 'taking runs again'}"


def _first(words: Sequence[str]) -> list[str]:
    """The first few, and how many more there are."""
    more = len(words) - _SHOWN
    return [*words[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
