"""Logs: one record a line, whatever the text holds."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from makeway_runtime import logs
from makeway_runtime.settings import ServiceSettings
from makeway_runtime.tracing import attached


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def configured(log_format: str) -> None:
    settings = ServiceSettings.model_validate(
        {"state_dir": Path("/x"), "runtime_dir": Path("/y"), "log_format": log_format}
    )
    logs.configure(settings, service="test")


def test_json_is_one_object_a_line_with_level_time_and_service(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    structlog.get_logger("place").warning("said", job="j1")
    record = json.loads(capsys.readouterr().err)
    assert record["event"] == "said"
    assert record["job"] == "j1"
    assert record["level"] == "warning"
    assert record["service"] == "test"
    assert record["timestamp"].endswith("Z")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_text_from_outside_adds_no_record_and_no_escape(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configured(log_format)
    structlog.get_logger("place").warning("said", name="a\n2026-01-01 [error] fake\x1b[2J", raw=b"\n")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "\x1b[2J" not in printed


def test_the_libraries_write_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    logging.getLogger("some.library").error("from %s", "there\nor here")
    assert json.loads(capsys.readouterr().err)["event"] == "from there\\nor here"


def test_a_record_names_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    with attached("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
        structlog.get_logger("place").warning("said")
    assert json.loads(capsys.readouterr().err)["trace_id"] == "0af7651916cd43dd8448eb211c80319c"


def test_an_exception_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    try:
        raise ValueError("a\nb")
    except ValueError:
        structlog.get_logger("place").exception("failed")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "ValueError" in json.loads(printed)["exception"]


def test_a_library_that_repeats_itself_is_heard_once(capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    for number in range(5):
        logging.getLogger("aiokafka.client").error("no broker at %s", number)
        logging.getLogger("other").error("no broker at %s", number)
    printed = capsys.readouterr().err
    assert printed.count("aiokafka.client") == 1
    assert printed.count('"other"') == 5
