"""The safe settings, by value: a changed default of a library or a careless edit shows here."""

from pathlib import Path

import pytest
from makeway_runtime.kafka.connection import (
    REQUEST_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    consumer_options,
    producer_options,
)
from makeway_runtime.kafka.stream import RETRY_WITHIN_SECONDS, faststream_broker
from makeway_runtime.settings import ServiceSettings
from pydantic import SecretStr, ValidationError


def settings(**values: object) -> ServiceSettings:
    return ServiceSettings.model_validate({"state_dir": Path("/x"), "runtime_dir": Path("/y"), **values})


def test_producers_are_idempotent_and_wait_for_all_replicas() -> None:
    options = producer_options(settings(), client="test")
    assert options["acks"] == "all"
    assert options["enable_idempotence"] is True


def test_consumers_start_at_the_earliest_and_never_commit_by_themselves() -> None:
    options = consumer_options(settings(), client="test")
    assert options["auto_offset_reset"] == "earliest"
    assert options["enable_auto_commit"] is False


def test_faststream_is_as_safe_and_makes_no_topics() -> None:
    broker = faststream_broker(settings(), client="test")
    config = broker.config.broker_config
    assert config.graceful_timeout == settings().stop_timeout_seconds
    assert RETRY_WITHIN_SECONDS < 300


def test_a_group_gives_a_killed_member_up_before_the_one_that_follows_stops_asking() -> None:
    assert SESSION_TIMEOUT_MS < REQUEST_TIMEOUT_MS


def test_a_password_turns_on_sasl() -> None:
    options = producer_options(settings(kafka_username="u", kafka_password=SecretStr("p")), client="test")
    assert options["security_protocol"] == "SASL_PLAINTEXT"
    assert options["sasl_mechanism"] == "PLAIN"


def test_half_a_credential_is_refused() -> None:
    with pytest.raises(ValidationError, match="set together"):
        settings(kafka_username="u")


def test_secrets_do_not_print() -> None:
    assert "hush" not in repr(settings(kafka_username="u", kafka_password=SecretStr("hush")))


def test_settings_come_from_makeway_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEWAY_KAFKA_BOOTSTRAP", "127.0.0.1:19092")
    assert settings().kafka_bootstrap == "127.0.0.1:19092"
