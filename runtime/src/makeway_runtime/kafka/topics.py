"""Topics exist because they were made here, from one list, with explicit partitions and configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from makeway_schemas.topics import TopicSpec

from makeway_runtime.errors import TransientError
from makeway_runtime.kafka.connection import client_options
from makeway_runtime.settings import ServiceSettings

CREATE_TIMEOUT_SECONDS: Final = 30.0
"""The last resort: each request has a shorter limit of its own."""

_LOG: Final = structlog.get_logger(__name__)


async def ensure_topics(settings: ServiceSettings, topics: Sequence[TopicSpec]) -> None:
    """Creates those of `topics` that do not exist; leaves the others as they are.

    Raises TransientError when the broker cannot be reached or refuses.
    """
    if not topics:
        return
    try:
        async with asyncio.timeout(CREATE_TIMEOUT_SECONDS):
            await _create(settings, topics)
    except (KafkaError, OSError, TimeoutError) as error:
        raise TransientError(f"topics could not be created: {error!r}") from error


async def _create(settings: ServiceSettings, topics: Sequence[TopicSpec]) -> None:
    admin = AIOKafkaAdminClient(**client_options(settings, client="admin"))
    try:
        await admin.start()
        existing = set(await admin.list_topics())
        missing = [topic for topic in topics if topic.name not in existing]
        if missing:
            await _create_missing(admin, missing, settings.kafka_replication)
    finally:
        await admin.close()


async def _create_missing(admin: AIOKafkaAdminClient, missing: Sequence[TopicSpec], replication: int) -> None:
    answer = await admin.create_topics(
        [
            NewTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=replication,
                topic_configs=dict(topic.config),
            )
            for topic in missing
        ]
    )
    for name, code, *_ in answer.topic_errors:
        error = for_code(code)
        # Another process met the same gap: that is what was wanted.
        if code and error is not TopicAlreadyExistsError:
            raise TransientError(f"topic {name} could not be created: {error.__name__}")
    _LOG.info("topics created", topics=[topic.name for topic in missing])
