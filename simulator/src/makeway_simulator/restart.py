"""A scheduler that starts anew: it knows what is stored, and nothing of what the last one had derived from it."""

from makeway_policy.state import PoolState


def restarted(state: PoolState) -> PoolState:
    """A state of the same values, in the order in which a database gives them."""
    fresh = PoolState()
    for node in state.nodes.values():
        fresh.put_node(node)
    for gpu in state.gpus.values():
        fresh.put_gpu(gpu)
    for team in state.teams.values():
        fresh.put_team(team)
    for group in state.groups.values():
        fresh.put_group(group)
    for _, job in sorted(state.jobs.items()):
        fresh.put_job(job)
    for _, run in sorted(state.runs.items()):
        fresh.put_run(run)
    return fresh
