"""Decide what the pool does next, and apply it to the state."""

from makeway_policy.choices import Decisions
from makeway_policy.rules import Policy
from makeway_policy.state import PoolState


def decide(state: PoolState, policy: Policy, now: float) -> Decisions:
    """Choose for every job that something changed for, in queue order, and apply each choice to `state` as it goes.

    Each job sees the holds, notices and starts decided before it. Deciding again with nothing changed chooses nothing.
    What changed since the last call is known from the state's own indices; the cost follows it. `now` must not go back.
    Inside a transaction everything can be rolled back with it, what the indices know included.
    """
    raise NotImplementedError
