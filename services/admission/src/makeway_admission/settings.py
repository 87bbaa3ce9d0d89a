"""The settings of admission, read once in `__main__`."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Self

from makeway_runtime.settings import DatabaseServiceSettings
from pydantic import Field, PositiveInt, SecretStr, model_validator

MAX_BODY_BYTES: Final = 1024 * 1024
MAX_PAGE: Final = 1000
DEFAULT_PAGE: Final = 100


class AdmissionSettings(DatabaseServiceSettings):
    """Where admission listens, whom it lets in at the start, and how many streams it serves."""

    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0 takes a free port; the port in use is written to `http_port_file`."""
    http_port_file: Path | None = None
    """Default: `admission.port` in the runtime folder."""
    http_tls_certificate_file: Path | None = None
    http_tls_key_file: Path | None = None
    bootstrap_token: SecretStr | None = None
    """An admin's token that exists from the first start, `mw_<token id>_<secret>`."""
    node_tokens: dict[str, SecretStr] = Field(default_factory=dict)
    """Node to its token, as a JSON object."""
    max_streams: PositiveInt = 256
    """Event and log streams at once; each follows without holding what its reader has not taken."""
    log_run_max_bytes: PositiveInt = 1280 * 1024 * 1024
    """Most that is kept of one run's log. Nodes cap a run's output below this themselves."""

    @property
    def log_folder(self) -> Path:
        """Where the logs of runs are kept."""
        return self.state_dir / "logs"

    @property
    def port_file(self) -> Path:
        """Where the port in use is written."""
        return self.http_port_file or self.runtime_dir / "admission.port"

    @model_validator(mode="after")
    def _beyond_loopback_only_with_tls(self) -> Self:
        if (self.http_tls_certificate_file is None) != (self.http_tls_key_file is None):
            raise ValueError("http_tls_certificate_file and http_tls_key_file are set together or not at all")
        if self.http_tls_certificate_file is None and not _is_loopback(self.http_host):
            raise ValueError(f"http_host {self.http_host} is not loopback: set http_tls_certificate_file and its key")
        return self


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
