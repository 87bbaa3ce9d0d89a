"""Policies that come with the product.

`default` is docs/policy.md. `plain` is strict priority: Δ = 1, no minimum run, no aging, no budgets. A class with an
SLA wait that is added to it ages as elsewhere, so what its aged jobs win is kept for the promoted minimum run.
`fifo` (by submit time) and `round-robin` (teams in turn) preempt nobody; they are for a handful of nodes that need no
more. A turn is only a turn if past use counts: present use is 0 again whenever runs end together.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from makeway_policy.rules import JobClass, MayPreempt, Order, Policy

DEFAULT: Final = Policy()


def _plain(rules: JobClass) -> JobClass:
    return replace(
        rules,
        may_preempt=MayPreempt.YES,
        minimum_run_seconds=0.0,
        cool_down_seconds=0.0,
        preemptions_per_day=None,
        sla_wait_seconds=None,
    )


PLAIN: Final = replace(
    DEFAULT,
    name="plain",
    delta=1,
    classes=MappingProxyType({name: _plain(rules) for name, rules in DEFAULT.classes.items()}),
)
FIFO: Final = replace(DEFAULT, name="fifo", priorities=False, preemption=False, order=Order.SUBMIT)
# A day, as HTCondor's. Far shorter than a run, weights would not count beside who ran last; far longer, who was idle
# last week would have all the turns of this one.
ROUND_ROBIN: Final = replace(
    DEFAULT,
    name="round-robin",
    priorities=False,
    preemption=False,
    order=Order.FAIR,
    usage_half_life_seconds=86400.0,
)
PRESETS: Final = MappingProxyType({each.name: each for each in (DEFAULT, PLAIN, FIFO, ROUND_ROBIN)})
