"""Beyond loopback only with TLS."""

from pathlib import Path
from typing import Any

import pytest
from makeway_admission.settings import AdmissionSettings
from pydantic import ValidationError


def settings(**values: Any) -> AdmissionSettings:
    folders = {"state_dir": "/s", "runtime_dir": "/r", "postgres_dsn": "postgresql://x"}
    return AdmissionSettings.model_validate({**folders, **values})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert settings(http_host=host).http_host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", ""])  # noqa: S104 - that it is refused is what is tested
def test_any_other_address_is_refused_without_tls(host: str) -> None:
    with pytest.raises(ValidationError, match="not loopback"):
        settings(http_host=host)
    tls = {"http_tls_certificate_file": "/c", "http_tls_key_file": "/k"}
    assert settings(http_host=host, **tls).http_host == host


def test_a_certificate_comes_with_its_key() -> None:
    with pytest.raises(ValidationError, match="together"):
        settings(http_tls_certificate_file="/c")


def test_the_port_file_and_the_logs_have_places_of_their_own() -> None:
    assert settings().port_file == Path("/r/admission.port")
    assert settings().log_folder == Path("/s/logs")


def test_tokens_are_not_printed() -> None:
    shown = repr(settings(bootstrap_token="mw_a_" + "x" * 30, node_tokens={"n1": "mw_b_" + "y" * 30}))
    assert "xxx" not in shown
    assert "yyy" not in shown
