"""Alibaba's openb trace (cluster-trace-gpu-v2023): nodes, pods that ask for parts of GPUs, arrival orders.

A folder holds `openb_node_list_gpu_node.csv`, one `openb_pod_list_WORKLOAD.csv` a workload and
`arrival_orders.jsonl`, each plain or with `.gz`.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

from makeway_policy.quantities import quantity

from makeway_simulator.errors import TraceError, UnknownChoice
from makeway_simulator.packing.fleet import MILLI, NodeSpec, PodShape
from makeway_simulator.packing.replay import Order
from makeway_simulator.readers.table import Row, Skipping, clipped, json_of, lines_of, read_rows

NODES: Final = "openb_node_list_gpu_node.csv"
ORDERS: Final = "arrival_orders.jsonl"
_PODS: Final = "openb_pod_list_"
_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_GPUS_MOST: Final = 1024
_SEED_MOST: Final = 2**53


def files_of(folder: Path) -> tuple[Path, ...]:
    """All files of a folder that are of the trace."""
    names = (NODES, f"{_PODS}*.csv", ORDERS)
    return tuple(sorted(each for name in names for end in ("", ".gz") for each in folder.glob(name + end)))


def read_nodes(folder: Path, skipping: Skipping) -> list[NodeSpec]:
    """The nodes. Raises TraceError."""
    return read_rows(_plain_or_packed(folder, NODES), _NODE_COLUMNS, partial(_node, known=set()), skipping)


def read_pods(folder: Path, workload: str, skipping: Skipping) -> list[PodShape]:
    """The workload's pods sorted by name, as arrival orders count them. Raises TraceError, UnknownChoice."""
    name = f"{_PODS}{workload.removeprefix(_PODS)}.csv"
    try:
        path = _plain_or_packed(folder, name)
    except TraceError as error:
        raise UnknownChoice("workload", workload, workloads(folder)) from error
    named = read_rows(path, _POD_COLUMNS, partial(_pod, known=set()), skipping)
    return [shape for _, shape in sorted(named, key=lambda each: each[0])]


def workloads(folder: Path) -> tuple[str, ...]:
    """The names of the workloads in a folder."""
    names = (path.name.removesuffix(".gz") for path in folder.glob(f"{_PODS}*.csv*"))
    return tuple(sorted({name.removeprefix(_PODS).removesuffix(".csv") for name in names}))


def read_orders(folder: Path, workload: str, pods: int, path: Path | None = None) -> list[Order]:
    """The workload's arrival orders, by seed; `pods` is how many pods there are. Raises TraceError, UnknownChoice."""
    wanted = workload.removeprefix(_PODS)
    source = path if path is not None else _plain_or_packed(folder, ORDERS)
    found: list[Order] = []
    seen: set[str] = set()
    for number, text in lines_of(source):
        if not text.strip():
            continue
        name, order = _order(str(source), number, text, pods, wanted)
        seen.add(name)
        if order is not None:
            found.append(order)
    if not found:
        raise UnknownChoice(f"arrival order in {source} for the workload", workload, tuple(sorted(seen)))
    return sorted(found, key=lambda each: each.seed)


def _node(row: Row, known: set[str]) -> NodeSpec:
    return NodeSpec(
        name=row.new_name_of("sn", known),
        cpu_milli=row.whole("cpu_milli"),
        memory_mib=row.whole("memory_mib"),
        gpus=row.whole("gpu", most=_GPUS_MOST),
        model=row.text_of("model"),
    )


def _pod(row: Row, known: set[str]) -> tuple[str, PodShape]:
    gpus = row.whole("num_gpu", most=_GPUS_MOST)
    milli = row.whole("gpu_milli", most=MILLI)
    if gpus > 1 and milli != MILLI:
        raise row.refuse("gpu_milli", f"{milli} of each of {gpus} GPUs; only a single GPU can be shared")
    if gpus and not milli:
        raise row.refuse("gpu_milli", f"nothing of {quantity(gpus, 'GPU')} is asked for")
    shape = PodShape(
        cpu_milli=row.whole("cpu_milli"),
        memory_mib=row.whole("memory_mib"),
        gpus=gpus,
        gpu_milli=milli if gpus else 0,
        models=frozenset(model for model in row.text_of("gpu_spec").split("|") if model),
    )
    return row.new_name_of("name", known), shape


def _order(path: str, number: int, text: str, pods: int, wanted: str) -> tuple[str, Order | None]:
    try:
        value: Any = json_of(path, number, text)
        name, seed, order = value["workload"], value["seed"], value["order"]
    except (KeyError, TypeError) as error:
        raise TraceError(path, number, 1, "is no arrival order: it needs `workload`, `seed` and `order`") from error
    if not isinstance(name, str) or name.removeprefix(_PODS) != wanted:
        return str(name).removeprefix(_PODS), None
    if type(seed) is not int or not isinstance(order, list):
        raise TraceError(path, number, 1, "`seed` must be a whole number and `order` a list")
    if not 0 <= seed <= _SEED_MOST:
        raise TraceError(path, number, max(1, text.find('"seed"') + 1), f"`seed` is not within 0 to {_SEED_MOST}")
    for index in order:
        if type(index) is not int or not 0 <= index < pods:
            told = clipped(json.dumps(index))
            raise TraceError(
                path, number, max(1, text.find(told) + 1), f"{told} is no index of {quantity(pods, 'pod')}"
            )
    return wanted, Order(seed=seed, order=tuple(order))


def _plain_or_packed(folder: Path, name: str) -> Path:
    for each in (folder / name, folder / f"{name}.gz"):
        if each.is_file():
            return each
    raise TraceError(str(folder / name), 0, 0, "is not there, nor with .gz")
