"""The settings every service has. Each service subclasses `ServiceSettings` and reads it once, in its `app.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """Frozen; read from `MAKEWAY_*` variables. Secrets print as stars."""

    model_config = SettingsConfigDict(env_prefix="MAKEWAY_", frozen=True, extra="ignore")

    environment: str = "local"
    pool: str = "default"
    state_dir: Path
    """Data that outlives the process."""
    runtime_dir: Path
    """Sockets and port files. Kept short: a Unix socket's path ends at 107 bytes."""

    kafka_bootstrap: str = "127.0.0.1:9092"
    kafka_username: str | None = None
    kafka_password: SecretStr | None = None
    kafka_tls_ca_file: Path | None = None
    kafka_tls_certificate_file: Path | None = None
    kafka_tls_key_file: Path | None = None
    kafka_replication: PositiveInt = 1
    """Copies of each topic; 3 on a cluster of brokers."""
    kafka_publish_timeout_seconds: PositiveFloat = 5.0
    kafka_stop_timeout_seconds: PositiveFloat = 3.0

    health_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """On loopback; 0 takes a free port, written to `health_file`."""
    health_file: Path | None = None
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    otlp_endpoint: str | None = None
    """For example http://127.0.0.1:4318; without it nothing is traced and no SDK is loaded."""
    stop_timeout_seconds: PositiveFloat = 10.0
    watchdog_seconds: PositiveFloat = 60.0
    """How long a vital health check may be red before the process ends itself to be started again."""

    @model_validator(mode="after")
    def _credentials_come_in_pairs(self) -> Self:
        if (self.kafka_username is None) != (self.kafka_password is None):
            raise ValueError("kafka_username and kafka_password are set together or not at all")
        if (self.kafka_tls_certificate_file is None) != (self.kafka_tls_key_file is None):
            raise ValueError("kafka_tls_certificate_file and kafka_tls_key_file are set together or not at all")
        return self


class DatabaseServiceSettings(ServiceSettings):
    """For services that own tables. A node's services have no database and do not use this class."""

    policy_file: Path | None = None
    """The policy that holds until one is applied, as JSON; without it the preset `default`."""
    postgres_dsn: SecretStr
    """With the service's own role, for example postgresql://makeway_scheduler:...@127.0.0.1:5432/makeway."""
    postgres_pool_max: PositiveInt = 4
    postgres_command_timeout_seconds: PositiveFloat = 10.0
    postgres_acquire_timeout_seconds: PositiveFloat = 5.0
    postgres_lock_timeout_ms: PositiveInt = 500
    postgres_statement_timeout_ms: PositiveInt = 10_000
    postgres_idle_transaction_timeout_ms: PositiveInt = 5_000
