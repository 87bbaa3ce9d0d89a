"""What the services stand on: PostgreSQL and Kafka, embedded or named by the user, and free ports."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from makeway.local.child import Child, ChildPlan, Pace, has_ended, how_it_ended
from makeway.local.cluster import ClusterFolder, ClusterSecrets, ClusterSettings, save_settings
from makeway.local.errors import ServerFailed, ServerUnavailable
from makeway.local.kafka import EmbeddedKafka, KafkaSettings, free_ports, is_free
from makeway.local.postgres import EmbeddedPostgres, PostgresSettings
from makeway.local.private_files import private_folder
from makeway.local.probes import server_probe
from makeway.local.processes import Launch, launch
from makeway.local.servers import Server
from makeway.local.services import Addresses, StopOrder

__all__ = ["Foundation", "free_settings"]

_DATABASE = "makeway"
_KAFKA_USER = "makeway"
_PROVISION_SECONDS = 120.0
_RECOVERY_SECONDS = 600.0  # after a power cut a server may have much to read before it answers


def free_settings(folder: ClusterFolder, settings: ClusterSettings) -> ClusterSettings:
    """The settings with ports that can be had: the former ones where they are free, else new ones. Saved if changed."""
    fresh = iter(free_ports(3))

    def kept_or_fresh(port: int) -> int:
        return port if port and is_free(port) else next(fresh)

    chosen = replace(
        settings,
        http_port=kept_or_fresh(settings.http_port),
        kafka_port=kept_or_fresh(settings.kafka_port),
        kafka_controller_port=kept_or_fresh(settings.kafka_controller_port),
    )
    if chosen != settings:
        save_settings(folder, chosen)
    return chosen


class Foundation:
    """The servers of one cluster. Raises ServerUnavailable when this host cannot have them."""

    def __init__(
        self, folder: ClusterFolder, settings: ClusterSettings, secrets: ClusterSecrets, runtime_folder: Path
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._secrets = secrets
        self._runtime_folder = runtime_folder
        self._postgres = None if settings.postgres_dsn else self._embedded_postgres()
        self._kafka = None if settings.kafka else self._embedded_kafka()

    def _embedded_postgres(self) -> EmbeddedPostgres:
        return EmbeddedPostgres(
            PostgresSettings(
                data_folder=self._folder.postgres,
                socket_folder=private_folder(self._runtime_folder / "pg"),
                log_path=self._folder.log("postgres"),
                password=self._secrets.postgres_password,
            )
        )

    def _embedded_kafka(self) -> EmbeddedKafka:
        if self._settings.libraries is None:
            raise ServerUnavailable("Kafka's jars are not there; `makeway up` fetches them")
        return EmbeddedKafka(
            KafkaSettings(
                data_folder=self._folder.kafka,
                libraries=Path(self._settings.libraries),
                log_path=self._folder.log("kafka"),
                port=self._settings.kafka_port,
                controller_port=self._settings.kafka_controller_port,
                username=_KAFKA_USER,
                password=self._secrets.kafka_password,
            )
        )

    def child_plans(self, pace: Pace) -> list[tuple[StopOrder, ChildPlan]]:
        """The embedded servers as supervised processes."""
        plans: list[tuple[StopOrder, ChildPlan]] = []
        if self._postgres is not None:
            plans.append((StopOrder.POSTGRES, _plan_of("postgres", self._postgres, pace)))
        if self._kafka is not None:
            plans.append((StopOrder.KAFKA, _plan_of("kafka", self._kafka, pace)))
        return plans

    async def until_usable(
        self, children: Mapping[str, Child], provision: tuple[str, ...], inherited: Mapping[str, str]
    ) -> None:
        """Wait for both servers, and prepare the database as soon as PostgreSQL answers."""

        async def database() -> None:
            if "postgres" in children:
                await children["postgres"].until_healthy()
            await self._provision(provision, inherited)

        async def broker() -> None:
            if "kafka" in children:
                await children["kafka"].until_healthy()

        await asyncio.gather(database(), broker())

    async def _provision(self, command: tuple[str, ...], inherited: Mapping[str, str]) -> None:
        log_path = self._folder.log("provision")
        process = launch(
            Launch(
                command=command,
                environment={
                    **inherited,
                    "MAKEWAY_POSTGRES_DSN": self._dsn(),
                    "MAKEWAY_ROLE_PASSWORDS": json.dumps(self._secrets.role_passwords),
                },
                working_dir=self._folder.root,
                log_path=log_path,
            )
        )
        if not await has_ended(process, _PROVISION_SECONDS):
            process.kill()
            await has_ended(process, 10)
            raise ServerFailed(f"the database was not prepared within {_PROVISION_SECONDS:g} s", log_path=log_path)
        if process.returncode != 0:
            what = how_it_ended(process.returncode)
            raise ServerFailed(f"the preparation of the database {what}", log_path=log_path)

    def _dsn(self) -> str:
        if self._settings.postgres_dsn:
            return self._settings.postgres_dsn
        if self._postgres is None:
            raise ServerUnavailable("there is no PostgreSQL")
        return self._postgres.dsn(database=_DATABASE)

    def addresses(self, inherited: Mapping[str, str]) -> Addresses:
        """Where the services find the servers."""
        username: str | None = _KAFKA_USER
        password: str | None = self._secrets.kafka_password
        bootstrap = f"127.0.0.1:{self._settings.kafka_port}"
        if self._settings.kafka:
            login, _, bootstrap = self._settings.kafka.rpartition("@")
            username, _, password = login.partition(":")
        return Addresses(
            postgres_dsn=self._dsn(),
            kafka_bootstrap=bootstrap,
            kafka_username=username or None,
            kafka_password=password or None,
            runtime_folder=self._runtime_folder,
            inherited=inherited,
        )


def _plan_of(name: str, server: Server, pace: Pace) -> ChildPlan:
    pace = replace(pace, start_seconds=_RECOVERY_SECONDS)
    return ChildPlan(name=name, launch=server.launch, probe=server_probe(server), prepare=server.prepare, pace=pace)
