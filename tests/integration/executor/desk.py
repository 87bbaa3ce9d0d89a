"""A scheduler's desk for tests: an executor process on one side, a real broker between, plans and facts here."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import servers
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from makeway_runtime.cloudevents import EventHeaders, to_headers
from makeway_runtime.devices.simulated import uuid_of
from makeway_runtime.kafka.connection import consumer_options, producer_options
from makeway_runtime.kafka.topics import ensure_topics
from makeway_runtime.settings import ServiceSettings
from makeway_schemas.facts import FactBatch
from makeway_schemas.plans import PLAN_TYPE, Launch, LeasedGpu, NodePlan, PlannedRun
from makeway_schemas.topics import ALL, NODE_PLANS, SCHEDULER_INBOX
from node_runs import SLEEP, VRAM_MIB, planned, run_id

DEADLINE_SECONDS = 30.0


class Desk:
    """Publishes plans for one node and reads what the node tells."""

    def __init__(self, folder: Path, sockets: Path, kafka: servers.KafkaAddress, *, node: str, pool: str) -> None:
        self.folder, self.sockets, self.node, self.pool = folder, sockets, node, pool
        self.environment = {
            "MAKEWAY_STATE_DIR": str(folder),
            "MAKEWAY_RUNTIME_DIR": str(sockets),
            "MAKEWAY_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "MAKEWAY_NODE_NAME": node,
            "MAKEWAY_POOL": pool,
            "MAKEWAY_SIMULATE": "4xA100-80GB",
            "MAKEWAY_REPORT_SECONDS": "1",
        }
        if kafka.username is not None and kafka.password is not None:
            self.environment |= {"MAKEWAY_KAFKA_USERNAME": kafka.username, "MAKEWAY_KAFKA_PASSWORD": kafka.password}
        self.settings = ServiceSettings.model_validate(
            {name.removeprefix("MAKEWAY_").lower(): value for name, value in self.environment.items()}
        )
        self.facts: list[Any] = []
        self.number = 0
        self.process: subprocess.Popen[bytes] | None = None

    async def open(self) -> None:
        await ensure_topics(self.settings, ALL)
        self.producer = AIOKafkaProducer(**producer_options(self.settings, client="desk"))
        await self.producer.start()
        self.consumer = AIOKafkaConsumer(**consumer_options(self.settings, client="desk"))
        await self.consumer.start()
        inbox = TopicPartition(SCHEDULER_INBOX.name, SCHEDULER_INBOX.partition_of(self.pool))
        self.consumer.assign([inbox])
        await self.consumer.seek_to_end(inbox)
        await self.consumer.position(inbox)

    async def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            (self.sockets / "drain.json").write_text('{"grace_seconds": 0}')
            self.process.send_signal(signal.SIGUSR1)
            await self.exit_code()
        await self.producer.stop()
        await self.consumer.stop()

    def start(self, **environment: str) -> None:
        log = (self.folder / "executor.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "makeway_executor"],
            env={"PATH": os.environ["PATH"], **self.environment, **environment},
            stdout=log,
            stderr=log,
        )
        log.close()

    async def exit_code(self) -> int:
        assert self.process is not None
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, (self.folder / "executor.log").read_text()
            await asyncio.sleep(0.02)
        return self.process.returncode

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.exit_code()

    async def read(self) -> None:
        found = await self.consumer.getmany(timeout_ms=100)
        for records in found.values():
            for record in records:
                batch = FactBatch.model_validate_json(record.value)
                self.facts += [fact for fact in batch.facts if getattr(fact, "node_id", None) == self.node]

    async def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (answer := condition()):
            assert time.monotonic() < deadline, (self.folder / "executor.log").read_text()
            await self.read()
        return answer

    async def fact(self, number: int, kind: str, *, session: str | None = None) -> Any:
        found = await self.until(lambda: self.of(number, kind, session=session))
        return found[0]

    def of(self, number: int, kind: str, *, session: str | None = None) -> list[Any]:
        return [
            fact
            for fact in self.facts
            if fact.kind == kind and getattr(fact, "run_id", "") == run_id(number) and session in (None, fact.session)
        ]

    async def report(self, wanted: Callable[[Any], bool] = lambda report: True) -> Any:
        """The next report that is as wanted."""
        before = len(self.facts)

        def found() -> Any:
            reports = [fact for fact in self.facts[before:] if fact.kind == "node_report" and wanted(fact)]
            return reports[-1] if reports else None

        return await self.until(found)

    async def session(self) -> str:
        """The session of the executor that runs now."""
        report = await self.report(lambda report: report.wants_plan)
        session: str = report.session
        return session

    def planned(self, number: int, launch: Launch = SLEEP, *, gpu: int = 0, **fields: Any) -> PlannedRun:
        """A run on one of this node's cards."""
        gpus = (LeasedGpu(gpu_id=uuid_of(self.node, gpu), vram_mib=VRAM_MIB),)
        return planned(number, launch, gpus=gpus, **fields)

    async def plan(self, session: str, *runs: PlannedRun, number: int | None = None) -> None:
        if number is None:
            self.number += 1
        plan = NodePlan(node_id=self.node, epoch=1, number=number or self.number, session=session, runs=runs)
        await self.publish(plan.model_dump_json().encode())

    async def publish(self, value: bytes) -> None:
        headers = EventHeaders(
            id=f"{self.node}/{time.monotonic_ns()}", type=PLAN_TYPE, source="/desk", time=datetime.now(UTC)
        )
        await self.producer.send_and_wait(
            NODE_PLANS.name,
            value,
            key=self.node.encode(),
            partition=NODE_PLANS.partition_of(self.node),
            headers=list(to_headers(headers)),
        )

    def dump(self) -> str:
        return json.dumps([fact.kind for fact in self.facts])
