"""Whoever is over its team's limit, and takes a run of its own: nodes that it may not use hide none that it may."""

from typing import Any

import pytest

Pool = Any

OTHERS = 70
"""More nodes than whoever is over its limit looks at."""


@pytest.mark.parametrize("others", [0, OTHERS])
def test_a_gang_takes_one_run_of_its_own_team_and_one_of_another(pool: Pool, others: int) -> None:
    for number in range(others):
        pool.add_node(f"idle-{number}")
    pool.add_node("node-a", labels={"real": "y"})
    pool.add_node("node-b", labels={"real": "y"})
    pool.add_team("limited", limit=2)
    pool.submit("theirs", team="other", pri=1, nodes=frozenset({"node-a"}))
    pool.submit("ours", team="limited", pri=1, nodes=frozenset({"node-b"}))
    pool.submit("gang", team="limited", pri=20, members=2, at=10, labels=(("real", "y"),))
    pool.run_until(20)
    assert pool.evictions == {"theirs": 1, "ours": 1}


@pytest.mark.parametrize("others", [0, OTHERS])
def test_a_run_of_its_own_team_is_found_among_many_elsewhere(pool: Pool, others: int) -> None:
    pool.add_team("limited", limit=others + 1)
    for number in range(others):
        pool.add_node(f"full-{number}")
        pool.submit(f"elsewhere-{number}", team="limited", pri=1, nodes=frozenset({f"full-{number}"}))
    pool.add_node("node-a", labels={"real": "y"})
    pool.submit("ours", team="limited", pri=5, nodes=frozenset({"node-a"}))
    pool.submit("urgent", team="limited", pri=20, at=10, labels=(("real", "y"),))
    pool.run_until(20)
    assert pool.evictions == {"ours": 1}
