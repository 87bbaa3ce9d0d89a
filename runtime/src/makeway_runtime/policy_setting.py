"""The policy that a service starts from while none was applied: the file that `MAKEWAY_POLICY_FILE` names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from makeway_schemas.policy_file import PolicyFile
from pydantic import ValidationError

from makeway_runtime.errors import InvalidSetting


def policy_document(path: Path | None) -> dict[str, Any]:
    """The file's document, which is JSON (`makeway policy check FILE --output json` prints it); `{}` without a file.

    Raises InvalidSetting: no service starts with a policy that nobody meant.
    """
    if path is None:
        return {}
    try:
        return PolicyFile.model_validate_json(path.read_bytes()).document()
    except (OSError, ValidationError) as error:
        raise InvalidSetting(f"MAKEWAY_POLICY_FILE: {path}: {error}") from error
