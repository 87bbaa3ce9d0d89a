"""The composition root of admission."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from typing import Final

import asyncpg
from asyncpg.pool import Pool
from makeway_runtime.errors import TransientError
from makeway_runtime.health import Check
from makeway_runtime.kafka.publisher import Publisher
from makeway_runtime.postgres.outbox import Outbox
from makeway_runtime.postgres.pool import open_pool, ping
from makeway_schemas.topics import SCHEDULER_INBOX

from makeway_admission.access import Access, Role, given_token
from makeway_admission.admitting import outbox_store
from makeway_admission.doors import Doors
from makeway_admission.feed import Feed
from makeway_admission.housekeeping import Housekeeping
from makeway_admission.intake import Intake
from makeway_admission.log_store import LogStore
from makeway_admission.policy_in_force import PolicyInForce, first_policy
from makeway_admission.server import Server, listen
from makeway_admission.settings import AdmissionSettings
from makeway_admission.store import Store
from makeway_admission.streams import StreamSlots
from makeway_admission.web import create_app

_FLUSH_SECONDS: Final = 2.0
_OLDEST_FACT_SECONDS: Final = 15.0


class AdmissionService:
    """Opens the doors, keeps them open, and closes them without losing what was accepted."""

    def __init__(self, settings: AdmissionSettings) -> None:
        """Opens nothing yet."""
        self._settings = settings
        self._publisher = Publisher(settings, client="admission", topics=[SCHEDULER_INBOX])
        self._pool: Pool[asyncpg.Record] | None = None
        self._doors: Doors | None = None
        self._server: Server | None = None
        self._socket: socket.socket | None = None

    async def start(self) -> None:
        """Connects to the database, keeps the given tokens, and listens."""
        settings = self._settings
        self._pool = await open_pool(settings, service="admission")
        store = Store(self._pool, settings.pool)
        await _keep_given_tokens(settings, store)
        policies = PolicyInForce(store, first_policy(settings.policy_file))
        await policies.look()
        outbox = Outbox(settings, self._pool, self._publisher, outbox_store(settings.pool))
        self._doors = Doors(
            settings=settings,
            store=store,
            access=Access(store),
            intake=Intake(settings, self._pool, outbox),
            outbox=outbox,
            feed=Feed(settings),
            logs=LogStore(settings.log_folder, run_max_bytes=settings.log_run_max_bytes),
            streams=StreamSlots(settings.max_streams),
            policies=policies,
            checks=self.checks,
        )
        self._socket = listen(settings)
        self._server = Server(create_app(self._doors), settings)

    async def run(self) -> None:
        """Serves until cancelled."""
        if self._doors is None or self._server is None or self._socket is None:
            raise RuntimeError("start() comes before run()")
        async with asyncio.TaskGroup() as group:
            doors = self._doors
            for work in (doors.outbox, doors.intake, doors.feed, doors.policies, Housekeeping(doors.store)):
                group.create_task(work.run())
            # In the group's body: told to end, it ends first, while the others still serve its open requests.
            await self._serve(self._doors, self._server, self._socket)

    async def stop(self) -> None:
        """Publishes what is committed if the broker takes it soon; the outbox keeps the rest."""
        if self._doors is not None:
            with contextlib.suppress(TimeoutError, TransientError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._doors.outbox.flush()
        await self._publisher.stop()
        if self._pool is not None:
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()
                # Connections that are aborted are closed by the loop's next turn.
                await asyncio.sleep(0)
        if self._socket is not None:
            self._socket.close()
        self._settings.port_file.unlink(missing_ok=True)

    def checks(self) -> Sequence[Check]:
        """The database, and whether what was committed is being published."""
        return (Check(name="postgres", probe=self._probe_database), Check(name="outbox", probe=self._probe_outbox))

    async def _serve(self, doors: Doors, server: Server, listening: socket.socket) -> None:
        serving = asyncio.create_task(server.serve([listening]))
        try:
            await asyncio.shield(serving)
        finally:
            # Streams end first: an open one would hold the server's graceful end up to its limit.
            doors.feed.close()
            server.end()
            await serving

    async def _probe_database(self) -> str | None:
        if self._pool is None:
            return "not connected"
        await ping(self._pool)
        return None

    async def _probe_outbox(self) -> str | None:
        age = None if self._doors is None else await self._doors.store.oldest_fact_seconds()
        return None if age is None or age < _OLDEST_FACT_SECONDS else f"facts have waited {age:.0f} s for the broker"


async def _keep_given_tokens(settings: AdmissionSettings, store: Store) -> None:
    if settings.bootstrap_token is not None:
        token = given_token(settings.bootstrap_token.get_secret_value(), name="MAKEWAY_BOOTSTRAP_TOKEN")
        await store.keep_given_token(token, role=Role.ADMIN, node=None, label="admin")
    for node, secret in settings.node_tokens.items():
        token = given_token(secret.get_secret_value(), name=f"MAKEWAY_NODE_TOKENS[{node}]")
        await store.keep_given_token(token, role=Role.NODE, node=node, label=f"node {node}")
