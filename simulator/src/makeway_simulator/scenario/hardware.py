"""The nodes, cards and MIG instances of a case as the policy knows them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from makeway_policy.model import Gpu, GpuHealth, Node
from makeway_policy.state import PoolState

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario.forms import PROFILE
from makeway_simulator.scenario.nodes import CaseNode


def node_value(node: CaseNode) -> Node:
    """The host itself."""
    return Node(node_id=node.name, labels=node.labels, cpus=node.cpus, memory_mib=node.memory_mib)


def gpus_of(node: CaseNode, slots: int) -> Iterator[Gpu]:
    """Its cards, `{node}/{index}`, and their instances, `{node}/{index}/{profile}/{number}`."""
    for index in range(node.gpus):
        yield Gpu(
            gpu_id=f"{node.name}/{index}", node_id=node.name, index=index, type_name=node.type_name,
            vram_mib=node.vram_mib, slots=slots if node.shared else 1, in_mig_mode=bool(node.slices),
            link_group=None if node.linked is None else index // node.linked,
        )  # fmt: skip
    yield from _instances(node, node.slices or {})


def _instances(node: CaseNode, slices: Mapping[str, int]) -> Iterator[Gpu]:
    for index in range(node.gpus):
        for profile, number in slices.items():
            for part in range(number):
                yield Gpu(
                    gpu_id=f"{node.name}/{index}/{profile}/{part}", node_id=node.name, index=index, slots=1,
                    type_name=node.type_name, vram_mib=_vram_mib(profile), mig_profile=profile,
                )  # fmt: skip


def report_layout(state: PoolState, node: CaseNode, slots: int) -> None:
    """The node's newest report: cards and instances as it says; those that are absent are gone unless leased.

    One that is back is well; of the others a layout says nothing of their health.
    """
    reported = {gpu.gpu_id: gpu for gpu in gpus_of(node, slots)}
    for gpu in reported.values():
        known = state.gpus.get(gpu.gpu_id)
        if known is not None and known.health is not GpuHealth.LOST:
            gpu = replace(gpu, health=known.health)
        state.put_gpu(gpu)
    for gpu in state.gpus_of_node(node.name):
        if gpu.gpu_id not in reported:
            state.put_gpu(_lost(gpu))
    forget_lost(state)


def forget_lost(state: PoolState) -> None:
    """Take away instances that are gone and that nothing runs on any more."""
    for gpu in tuple(state.gpus.values()):
        if gpu.health is GpuHealth.LOST and gpu.mig_profile is not None and not state.runs_on_gpu(gpu.gpu_id):
            state.remove_gpu(gpu.gpu_id)


def capacity(state: PoolState) -> dict[str, int]:
    """GPUs that count, by MIG profile, and whole cards; one that is gone counts until it is free."""
    found: dict[str, int] = {}
    for gpu in state.gpus.values():
        if not gpu.in_mig_mode:
            kind = gpu.mig_profile or "whole"
            found[kind] = found.get(kind, 0) + 1
    return found


def _lost(gpu: Gpu) -> Gpu:
    return Gpu(
        gpu_id=gpu.gpu_id, node_id=gpu.node_id, index=gpu.index, type_name=gpu.type_name, vram_mib=gpu.vram_mib,
        slots=gpu.slots, health=GpuHealth.LOST, mig_profile=gpu.mig_profile,
    )  # fmt: skip


def _vram_mib(profile: str) -> int:
    match = PROFILE.fullmatch(profile)
    if match is None:
        raise ScenarioError("slices", f"{profile!r} is no MIG profile such as 1g.5gb")
    return int(match[1]) * 1024
