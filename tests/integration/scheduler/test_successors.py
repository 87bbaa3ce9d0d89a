"""Whoever takes over finds in the database what its predecessor had in memory, whatever came together in a batch."""

import random
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pytest
from makeway_scheduler.ledger import Ledger
from makeway_schemas.facts import Fact, RunEnd
from makeway_schemas.plans import PlannedRun, Verb
from makeway_schemas.states import StopCause
from scheduler_harness import Node, PoolUnderTest, ended, preempted

NOT_STORED = {"stored", "moves_to", "released_at", "plan_session"}  # what is decided or sent anew
CLASSES = ("urgent", "high", "normal", "low")


class Life:
    """Jobs that come and go at random on nodes that do what their plans say, a little late."""

    def __init__(self, pool: PoolUnderTest, seed: int) -> None:
        self.pool = pool
        self.random = random.Random(seed)
        self.nodes = [Node(name, gpus=2) for name in ("a", "b")]
        self.alive: dict[str, Node] = {}
        self.gone: set[str] = set()

    async def turn(self) -> None:
        """One batch with whatever has happened since the last."""
        draw = self.random.random
        facts: list[Fact] = []
        for _ in range(self.random.choice((0, 0, 1, 3))):
            await self._submit()
        for node in self.nodes:
            for planned in self.pool.planned(node.name).values() if self.pool.plans(node.name) else ():
                if draw() < 0.5:
                    facts += self._happens(node, planned)
            if draw() < 0.2:
                facts.append(node.report())
        if self.pool.ledger.jobs and draw() < 0.3:
            job = self.random.choice([each.job_id for each in self.pool.ledger.jobs])
            facts.append(await self.pool.command(job, self.random.choice(("cancel", "preempt", "preempt"))))
        if draw() < 0.1:
            name = self.random.choice(self.nodes).name
            facts.append(await self.pool.node_command(name, self.random.choice(("drain", "uncordon", "uncordon"))))
        await self.pool.turn(*await self.pool.news(), *facts)

    async def _submit(self) -> None:
        shape: dict[str, Any] = self.random.choice(
            ({"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"gpus": 1, "shares": 1}, {"gpus": 1, "vram_mib": 20_000})
        )
        team = self.random.choice(("default", "default", "owner"))
        await self.pool.submit(team=team, class_name=self.random.choice(CLASSES), **shape)

    def _happens(self, node: Node, planned: PlannedRun) -> list[Fact]:
        run_id = planned.run_id
        if run_id in self.gone:
            return []
        if run_id in self.alive:
            return self._goes_on(node, planned)
        if planned.verb is not Verb.RUN:
            self.gone.add(run_id)
            return [node.exited(run_id, RunEnd(outcome="never_started"), empty=())]
        if any(each in self.alive for each in planned.after):
            return []
        self.alive[run_id] = node
        return [node.started(run_id)]

    def _goes_on(self, node: Node, planned: PlannedRun) -> list[Fact]:
        run_id, stop = planned.run_id, planned.stop
        if self.random.random() < 0.3:
            return [node.acked(run_id, self.random.randrange(100))]
        if planned.verb is Verb.RUN and self.random.random() < 0.7:
            return []
        del self.alive[run_id]
        self.gone.add(run_id)
        gpus = [gpu.gpu_id for gpu in planned.gpus]
        if stop is None:
            return [node.exited(run_id, ended(), empty=gpus)]
        end = preempted(cause=stop.cause)
        return [node.noticed(run_id, StopCause(stop.cause)), node.exited(run_id, end, empty=gpus)]


def differences(found: Iterable[Any], kept: Iterable[Any], key: str) -> list[str]:
    """Where rows and memory disagree; the database keeps microseconds."""
    ours, theirs = ({getattr(each, key): each for each in side} for side in (kept, found))
    said = [f"only in one of both: {name}" for name in ours.keys() ^ theirs.keys()]
    for name in ours.keys() & theirs.keys():
        for each in fields(ours[name]):
            mine, its = (getattr(side[name], each.name) for side in (ours, theirs))
            numbers = isinstance(its, float) or each.name == "preempted_at"
            same = mine == (pytest.approx(its, abs=1e-5) if numbers else its)
            if each.name not in NOT_STORED and not same:
                said.append(f"{name}.{each.name}: memory {mine!r}, rows {its!r}")
    return said


@pytest.mark.parametrize("seed", range(4))
async def test_a_successor_finds_what_was_in_memory(pool: PoolUnderTest, seed: int) -> None:
    await pool.sql.execute("INSERT INTO teams (team_id, guarantee) VALUES ('owner', 1)")
    await pool.take_over()
    life = Life(pool, seed)
    await pool.turn(*(node.report() for node in life.nodes))
    for _ in range(40):
        await life.turn()
        successor = Ledger("default", pool.policy)
        await pool.store.load(successor)
        memory = pool.ledger
        assert differences(successor.runs, memory.runs, "run_id") == []
        assert differences(successor.jobs, memory.jobs, "job_id") == []
        assert differences(successor.gpus, memory.gpus, "gpu_id") == []
        assert differences(successor.nodes, memory.nodes, "node_id") == []
    assert not pool.dead
