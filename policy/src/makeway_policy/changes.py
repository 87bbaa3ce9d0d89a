"""What a transaction on the state has touched, and what has changed since the derived indices last looked."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from makeway_policy.model import Member


@dataclass(frozen=True, kw_only=True, slots=True)
class Touched:
    """The ids of everything that a transaction has changed so far (what the caller locks and writes)."""

    jobs: frozenset[str]
    runs: frozenset[str]
    nodes: frozenset[str]
    gpus: frozenset[str]


@dataclass(kw_only=True, slots=True)
class Changes:
    """What changed since the derived indices last looked.

    `nodes` are those with a change of any kind, `gpus` by node those whose runs changed, `rebuilt` the nodes whose own
    value or set of GPUs did; a run that has only started on what it had is in `started` alone. `teams` have
    other rights (those are in `rights` too) or another usage, `eased` use less of something. `undone` are jobs whose
    change was rolled back, `amended` those that ask for something else than before.
    """

    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    gpus: dict[str, set[str]] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    rebuilt: set[str] = field(default_factory=set)
    teams: set[str] = field(default_factory=set)
    rights: set[str] = field(default_factory=set)
    eased: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    amended: set[str] = field(default_factory=set)
    everything: bool = True

    def note_members(self, members: Iterable[Member]) -> None:
        """Something is different where a run has these members."""
        for member in members:
            self.nodes.add(member.node_id)
            self.gpus.setdefault(member.node_id, set()).update([lease.gpu_id for lease in member.leases])
