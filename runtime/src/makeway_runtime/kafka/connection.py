"""The options of every Kafka client. The libraries' defaults lose messages; these do not."""

from __future__ import annotations

import ssl
from typing import Any, Final

from aiokafka.helpers import create_ssl_context
from makeway_schemas.topics import MAX_MESSAGE_BYTES

from makeway_runtime.settings import ServiceSettings

REQUEST_TIMEOUT_MS: Final = 10_000
METADATA_MAX_AGE_MS: Final = 60_000
SESSION_TIMEOUT_MS: Final = 9_000
"""So long a group waits for a member that was killed; less than a request may take, so that who joins is answered."""
MAX_POLL_INTERVAL_MS: Final = 300_000
FETCH_MAX_WAIT_MS: Final = 2_000
"""A parked fetch is answered as soon as there is a message; the default of 500 ms doubles the cost of idling."""
RETRY_BACKOFF_MS: Final = 250
"""The default of 100 ms costs CPU and log lines while a broker is away, and wins nothing."""


def client_options(settings: ServiceSettings, *, client: str) -> dict[str, Any]:
    """Address and security, for producers, consumers and the admin client alike."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap,
        "client_id": f"makeway-{client}",
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        "retry_backoff_ms": RETRY_BACKOFF_MS,
    }
    tls = tls_context(settings)
    protocol = "PLAINTEXT" if tls is None else "SSL"
    if settings.kafka_password is not None:
        protocol = f"SASL_{protocol}"
        options["sasl_mechanism"] = "PLAIN"
        options["sasl_plain_username"] = settings.kafka_username
        options["sasl_plain_password"] = settings.kafka_password.get_secret_value()
    options["security_protocol"] = protocol
    options["ssl_context"] = tls
    return options


def producer_options(settings: ServiceSettings, *, client: str) -> dict[str, Any]:
    """acks=all and idempotent: no loss on the broker's side, no duplicates and no reordering within one producer."""
    return {
        **client_options(settings, client=client),
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 0,
        "max_request_size": MAX_MESSAGE_BYTES,
    }


def consumer_options(settings: ServiceSettings, *, client: str) -> dict[str, Any]:
    """From the earliest message where no position is known; offsets are never committed behind the handler's back."""
    return {
        **client_options(settings, client=client),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
    }


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Returns the TLS context, or None where no CA file is set."""
    if settings.kafka_tls_ca_file is None:
        return None
    certificate, key = settings.kafka_tls_certificate_file, settings.kafka_tls_key_file
    context: ssl.SSLContext = create_ssl_context(
        cafile=str(settings.kafka_tls_ca_file),
        certfile=None if certificate is None else str(certificate),
        keyfile=None if key is None else str(key),
    )
    return context
