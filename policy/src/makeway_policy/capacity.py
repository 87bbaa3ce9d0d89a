"""What can never run: requests that no registered hardware could serve, however idle it is; and what cannot run before
something that is out of use is used again.

Lost nodes count (they may come back), and so do lost cards and quarantined and cordoned GPUs; MIG instances that their
node no longer reports do not. Order of checks (the first that fails
is the limiting fact):
 1. node lists and labels
 2. GPU type or MIG profile
 3. card size
 4. GPUs on one node
 5. CPU and memory of one node
 6. room for all members of a gang
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from makeway_policy import placement
from makeway_policy.model import Drain, Gpu, GpuHealth, Job, LeaseKind, Node, NodeHealth, Reason, Refusal, Shape
from makeway_policy.quantities import quantity, verb
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState


@dataclass(frozen=True, kw_only=True, slots=True)
class _Host:
    node: Node
    gpus: Sequence[Gpu]


def never_fits(state: PoolState, policy: Policy, shape: Shape) -> Refusal | None:
    """The limiting fact, or None where the registered nodes could run the shape."""
    return _never_fits([_Host(node=node, gpus=_whole(state, node)) for node in state.nodes.values()], policy, shape)


def out_of_use(state: PoolState, policy: Policy, shape: Shape) -> tuple[str, ...]:
    """The nodes and GPUs that could run the shape and are out of use, each with what it is; none where others could.

    They are all that it waits for: neither the end of a run nor time would let it start.
    """
    if _never_fits(_usable(state), policy, shape) is None or never_fits(state, policy, shape) is not None:
        return ()
    return tuple(_out_of_use(state, policy, shape))


def fits_without(state: PoolState, policy: Policy, job: Job, nodes: Collection[str], gpus: Collection[str]) -> bool:
    """Whether what is in use could run the job, were it idle, without these nodes and GPUs."""
    others = [
        _Host(node=host.node, gpus=[gpu for gpu in host.gpus if gpu.gpu_id not in gpus])
        for host in _usable(state)
        if host.node.node_id not in nodes and job.resume_node in (None, host.node.node_id)
    ]
    return _never_fits(others, policy, job.shape) is None


def _usable(state: PoolState) -> list[_Host]:
    return [
        _Host(node=node, gpus=[gpu for gpu in _whole(state, node) if gpu.health is GpuHealth.AVAILABLE])
        for node in state.nodes.values()
        if node.takes_placements
    ]


def _out_of_use(state: PoolState, policy: Policy, shape: Shape) -> Iterator[str]:
    for node in state.nodes.values():
        suiting = [gpu for gpu in _whole(state, node) if placement.suits(gpu, shape, policy)]
        if not placement.node_admits(node, shape) or len(suiting) < shape.gpus:
            continue
        if not node.takes_placements:
            yield f"node {node.node_id} ({_closed(node)})"
            continue
        for gpu in suiting if shape.gpus else ():
            if gpu.health is not GpuHealth.AVAILABLE:
                yield f"GPU {gpu.index} of {gpu.node_id} ({gpu.health})"


def _closed(node: Node) -> str:
    if node.health is not NodeHealth.READY:
        return str(node.health)
    if node.drain is not Drain.NO:
        return "draining"
    return "cordoned" if node.cordoned else f"takes no runs: {node.refusal}"


def _never_fits(hosts: Sequence[_Host], policy: Policy, shape: Shape) -> Refusal | None:
    allowed = [host for host in hosts if placement.node_admits(host.node, shape)]
    if not allowed:
        return _never("no registered node has the labels or the name asked for", nodes=str(len(hosts)))
    if shape.gpus == 0:
        return _host_limits(allowed, shape)
    names = placement.names_of(shape.gpu_type, policy)
    typed = [gpu for host in allowed for gpu in host.gpus if _is_asked(gpu, shape, names)]
    if not typed:
        asked = f"MIG profile {shape.mig}" if shape.mig else f"type {shape.gpu_type}" if shape.gpu_type else "any type"
        known = sorted({gpu.mig_profile or gpu.type_name for host in allowed for gpu in host.gpus})
        return _never(f"no registered GPU is of {asked}; there are {', '.join(known) or 'none'}", gpu_type=asked)
    size = max(shape.min_vram_mib, shape.vram_mib or 0)
    largest = max(gpu.vram_mib for gpu in typed)
    if size > largest:
        return _never(
            f"the largest such GPU has {largest} MiB of VRAM and the job asks for {size}",
            vram_mib=str(largest),
            asked=str(size),
        )
    return _counts(allowed, shape, policy)


def _counts(allowed: Sequence[_Host], shape: Shape, policy: Policy) -> Refusal | None:
    slots = max(gpu.slots for host in allowed for gpu in host.gpus)
    if shape.shares is not None and shape.shares > slots:
        return _never(
            f"a card has at most {quantity(slots, 'share')} (the policy's max_shares) and the job "
            f"asks for {shape.shares}",
            max_shares=str(slots),
            asked=str(shape.shares),
        )
    per_node = {
        host.node.node_id: sum(
            placement.suits(gpu, shape, policy) and gpu.slots >= (shape.shares or 1) for gpu in host.gpus
        )
        for host in allowed
    }
    most = max(per_node.values())
    if most < shape.gpus:
        return _never(
            f"no node has more than {quantity(most, 'such GPU')} and the job asks for {shape.gpus} on one node",
            per_node=str(most),
            asked=str(shape.gpus),
        )
    large = [host for host in allowed if per_node[host.node.node_id] >= shape.gpus]
    refused = _host_limits(large, shape)
    if refused is not None or shape.members == 1:
        return refused
    return _gang_limits(large, per_node, shape)


def _gang_limits(large: Sequence[_Host], per_node: dict[str, int], shape: Shape) -> Refusal | None:
    whole = placement.kind_of(shape) is LeaseKind.WHOLE
    fitting = sum(
        1 if shape.distinct_nodes or not whole else per_node[host.node.node_id] // max(1, shape.gpus) for host in large
    )
    if not whole and not shape.distinct_nodes:
        return None
    if fitting >= shape.members:
        return None
    return _never(
        f"at most {quantity(fitting, 'member')} of {quantity(shape.gpus, 'GPU')} {verb(fitting, 'fits', 'fit')} the "
        f"registered nodes and the gang has {shape.members}",
        members=str(fitting),
        asked=str(shape.members),
    )


def _host_limits(hosts: Sequence[_Host], shape: Shape) -> Refusal | None:
    for host in hosts:
        enough_cpus = not host.node.cpus or (shape.cpus or 0) <= host.node.cpus
        enough_memory = not host.node.memory_mib or (shape.memory_mib or 0) <= host.node.memory_mib
        if enough_cpus and enough_memory:
            return None
    words, figures = [], {}
    if shape.cpus:
        figures["cpus"] = f"{shape.cpus:g}"
        words.append(quantity(shape.cpus, "CPU"))
    if shape.memory_mib:
        figures["memory_mib"] = str(shape.memory_mib)
        words.append(f"{figures['memory_mib']} MiB of memory")
    which = "no node with such GPUs" if shape.gpus else "no node that the job may run on"
    return _never(f"{which} has {' and '.join(words)}", **figures)


def _is_asked(gpu: Gpu, shape: Shape, names: frozenset[str] | None) -> bool:
    if (gpu.mig_profile or None) != (shape.mig or None):
        return False
    return names is None or gpu.type_name.casefold() in names


def _whole(state: PoolState, node: Node) -> Sequence[Gpu]:
    """Its whole cards, and its instances as its newest report has them: a MIG layout that is no more comes not back."""
    return [
        gpu
        for gpu in state.gpus_of_node(node.node_id)
        if not gpu.in_mig_mode and not (gpu.mig_profile is not None and gpu.health is GpuHealth.LOST)
    ]


def _never(sentence: str, **detail: str) -> Refusal:
    return Refusal(reason=Reason.NEVER_FITS, sentence=sentence, detail=detail)
