"""Whether what a case names is there: nodes, cards, groups, classes. A slip would else be played as it stands."""

from collections.abc import Iterable
from math import inf
from typing import Final

from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import notation
from makeway_simulator.scenario.case import Case, CaseAction, CaseJob
from makeway_simulator.scenario.document import ActionEntry
from makeway_simulator.scenario.nodes import CaseNode, node_of

NO_VERBS: Final = frozenset({"at", "signal", "refused", "force", "for_"})
_OF_NODES: Final = ("drain", "cordon", "uncordon", "cut_network", "restore_network", "declare_dead")


def refuse_senseless(case: Case, classes: Iterable[str]) -> None:
    """Raises ScenarioError for a name that is not there, or is there twice; `classes` are those of the policy."""
    nodes = _nodes_of(case)
    named = set(classes) | {
        name
        for action in case.actions
        if action.entry.set_policy is not None
        for name in action.entry.set_policy.document().get("classes", {})
    }
    for job in case.jobs:
        _job(case, job, nodes, named)
    for action in case.actions:
        _action(case, action, nodes)


def verb_of(entry: ActionEntry, where: str) -> str:
    """What an action does. Raises ScenarioError unless it is one thing."""
    verbs = sorted(entry.model_fields_set - NO_VERBS)
    if len(verbs) != 1:
        raise ScenarioError(where, f"one thing at a time, not {', '.join(verbs) or 'none'}")
    return verbs[0]


def _nodes_of(case: Case) -> dict[str, CaseNode]:
    """All nodes that are ever there."""
    found: dict[str, CaseNode] = {}
    for number, node in enumerate(case.nodes):
        if node.name in found:
            raise ScenarioError(f"cluster.nodes[{number}]", f"there is a node {node.name} before it")
        found[node.name] = node
    for action in case.actions:
        entry = action.entry.add_node
        if entry is None:
            continue
        if entry.name in found:
            raise ScenarioError(f"{action.where}.add_node.name", f"there is a node {entry.name} before it")
        found[entry.name] = node_of(entry)
    return found


def _job(case: Case, job: CaseJob, nodes: dict[str, CaseNode], classes: set[str]) -> None:
    for field in ("needs", "exclude"):
        for name in notation.names(getattr(job.entry, field) or ()):
            _known(f"{job.where}.{field}", "node", name, nodes)
    if job.entry.group is not None:
        _known(f"{job.where}.group", "group", job.entry.group, case.groups)
    if job.entry.class_ is not None:
        _known(f"{job.where}.class", "class", job.entry.class_, classes)


def _action(case: Case, action: CaseAction, nodes: dict[str, CaseNode]) -> None:
    entry, verb = action.entry, verb_of(action.entry, action.where)
    if entry.for_ is not None and verb != "cut_network":
        raise ScenarioError(f"{action.where}.for", "is for cut_network alone")
    if action.at > case.until:
        raise ScenarioError(f"{action.where}.at", f"is after the end, which is at {case.until:g}")
    if getattr(entry, verb) is None:
        raise ScenarioError(f"{action.where}.{verb}", "is empty")
    if verb in _OF_NODES:
        for name in notation.names(getattr(entry, verb)):
            _known(f"{action.where}.{verb}", "node", name, nodes)
    if entry.report_layout is not None:
        _known(f"{action.where}.report_layout.node", "node", entry.report_layout.node, nodes)
    if verb in ("quarantine", "release") and not entry.refused:
        for name in notation.names(getattr(entry, verb)):
            if not _is_card(name, nodes):
                raise ScenarioError(
                    f"{action.where}.{verb}", f"there is no GPU {name}; they are named such as node-a/0"
                )


def _is_card(name: str, nodes: dict[str, CaseNode]) -> bool:
    node, _, rest = name.partition("/")
    index = rest.partition("/")[0]
    most = nodes[node].gpus if node in nodes else -inf
    return index.isascii() and index.isdecimal() and len(index) < notation.MOST_DIGITS and int(index) < most


def _known(where: str, what: str, name: str, known: Iterable[str]) -> None:
    found = sorted(known)
    if name not in found:
        raise ScenarioError(where, f"there is no {what} {name}; there is {', '.join(found[:10]) or 'none'}")
