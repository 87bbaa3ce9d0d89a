"""When a node has CPU and memory for a request, from the declared time limits of what runs there."""

from makeway_policy import placement
from makeway_policy.card_times import ENDLESS, NOW, expected_end
from makeway_policy.model import Shape
from makeway_policy.rooms import NodeRoom
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState

_ROUNDING = 1e-6


def host_ready(state: PoolState, policy: Policy, room: NodeRoom, shape: Shape, members: int) -> float:
    """When so many members of a shape have their CPU and memory on a node that counts any; ENDLESS where it has not so
    much.

    What waits there for GPUs that are being freed counts as long as it is expected to run.
    """
    node = room.node
    cpus, memory = (each * members for each in placement.host_share(room, shape))
    free_cpus, free_memory = node.cpus or ENDLESS, node.memory_mib or ENDLESS
    ends = []
    for run in state.runs_on_node(node.node_id):
        here = [member for member in run.members if member.node_id == node.node_id]
        used = sum([member.cpus for member in here]), sum([member.memory_mib for member in here])
        free_cpus, free_memory = free_cpus - used[0], free_memory - used[1]
        ends.append((expected_end(state, policy, run), run.run_id, *used))
    if cpus <= free_cpus + _ROUNDING and memory <= free_memory:
        return NOW
    for end, _, its_cpus, its_memory in sorted(ends):
        free_cpus, free_memory = free_cpus + its_cpus, free_memory + its_memory
        if cpus <= free_cpus + _ROUNDING and memory <= free_memory:
            return end
    return ENDLESS
