"""What an action of a scenario does on the virtual clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from makeway_policy.model import Drain, GpuHealth
from makeway_policy.rules import Policy

from makeway_simulator.engine import Engine
from makeway_simulator.errors import ScenarioError
from makeway_simulator.scenario import hardware, notation
from makeway_simulator.scenario.case import Case, CaseAction
from makeway_simulator.scenario.document import ActionEntry
from makeway_simulator.scenario.nodes import CaseNode, node_of
from makeway_simulator.scenario.policies import merged, policy_of
from makeway_simulator.scenario.sense import verb_of
from makeway_simulator.scenario.teams import team_value


@dataclass(kw_only=True)
class Stage:
    """What actions need to know, and what they leave behind: the policy in force, and what went wrong."""

    case: Case
    document: Mapping[str, Any]
    policy: Policy
    problems: list[str]
    nodes: dict[str, CaseNode]

    def act(self, action: CaseAction, engine: Engine) -> None:
        """Carry out one action."""
        entry = action.entry
        verb = verb_of(entry, action.where)
        try:
            refused = _VERBS[verb](self, engine, entry)
        except ScenarioError as error:
            raise ScenarioError(f"{action.where}.{verb}", str(error)) from error
        if entry.refused and not refused:
            self.problems.append(f"at {action.at:g}: the action was not refused")
        elif refused and not entry.refused:
            self.problems.append(f"at {action.at:g}: {refused}")

    def node(self, name: str) -> CaseNode:
        """A node by its name. Raises ScenarioError."""
        if name not in self.nodes:
            raise ScenarioError("actions", f"there is no node {name}")
        return self.nodes[name]


def _cancel(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    ended = [name for name in notation.names(entry.cancel or ()) if not engine.cancel(name)]
    return f"{', '.join(ended)} had ended before" if ended else ""


def _set_priority(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    highest = max(rules.own_value_max for rules in stage.policy.classes.values())
    for name, value in notation.by_name(entry.set_priority or {}).items():
        job = engine.state.jobs.get(name)
        if job is None:
            return f"{name} is not there"
        if value is not None and not 0 <= value <= highest:
            return f"a priority is 0 to {highest}, not {value}"
        engine.state.put_job(replace(job, manual_priority=value))
    return ""


def _preempt(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    refused = [engine.preempt(name, force=entry.force) for name in notation.names(entry.preempt or ())]
    return "; ".join(each.sentence for each in refused if each is not None)


def _drain(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    how = Drain.FORCED if entry.force else Drain.GENTLY
    for name in notation.names(entry.drain or ()):
        engine.state.put_node(replace(engine.state.nodes[stage.node(name).name], drain=how))
    return ""


def _kill(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    engine.pause()
    return ""


def _start(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    engine.resume()
    return ""


def _delete_finished_records(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    return ""  # the state keeps none


def _add_node(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    if entry.add_node is None:
        return "no node"
    node = node_of(entry.add_node)
    stage.nodes[node.name] = node
    engine.state.put_node(hardware.node_value(node))
    for gpu in hardware.gpus_of(node, stage.policy.max_shares):
        engine.state.put_gpu(gpu)
    return ""


def _of_nodes(field: str, act: Callable[[Engine, str], None]) -> "_Verb":
    def verb(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
        for name in notation.names(getattr(entry, field)):
            act(engine, stage.node(name).name)
        return ""

    return verb


def _cordon(engine: Engine, name: str, *, cordoned: bool) -> None:
    drain = engine.state.nodes[name].drain if cordoned else Drain.NO
    engine.state.put_node(replace(engine.state.nodes[name], cordoned=cordoned, drain=drain))


def _of_gpus(field: str, health: GpuHealth) -> "_Verb":
    def verb(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
        for name in notation.names(getattr(entry, field)):
            gpu = engine.state.gpus.get(name)
            if gpu is None:
                return f"there is no GPU {name}"
            engine.state.put_gpu(replace(gpu, health=health))
        return ""

    return verb


def _report_layout(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    if entry.report_layout is None:
        return "no layout"
    node = replace(stage.node(entry.report_layout.node), slices=entry.report_layout.slices)
    stage.nodes[node.name] = node
    hardware.report_layout(engine.state, node, stage.policy.max_shares)
    return ""


def _set_team(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    for name, rights in (entry.set_team or {}).items():
        engine.state.put_team(team_value(name, rights))
    return ""


def _set_policy(stage: Stage, engine: Engine, entry: ActionEntry) -> str:
    if entry.set_policy is None:
        return "no policy"
    stage.document = merged(stage.document, entry.set_policy.document())
    stage.policy = policy_of(stage.document)
    engine.apply_policy(stage.policy)
    return ""


_Verb = Callable[[Stage, Engine, ActionEntry], str]
"""Does it; gives why it was refused, or nothing."""

_VERBS: Mapping[str, _Verb] = {
    "cancel": _cancel,
    "set_priority": _set_priority,
    "preempt": _preempt,
    "drain": _drain,
    "kill": _kill,
    "start": _start,
    "delete_finished_records": _delete_finished_records,
    "add_node": _add_node,
    "cordon": _of_nodes("cordon", lambda engine, name: _cordon(engine, name, cordoned=True)),
    "uncordon": _of_nodes("uncordon", lambda engine, name: _cordon(engine, name, cordoned=False)),
    "cut_network": _of_nodes("cut_network", lambda engine, name: engine.machines.silence(name)),
    "restore_network": _of_nodes("restore_network", lambda engine, name: engine.machines.return_of(name)),
    "declare_dead": _of_nodes("declare_dead", lambda engine, name: engine.machines.lose(name)),
    "quarantine": _of_gpus("quarantine", GpuHealth.QUARANTINED),
    "release": _of_gpus("release", GpuHealth.AVAILABLE),
    "report_layout": _report_layout,
    "set_team": _set_team,
    "set_policy": _set_policy,
}
