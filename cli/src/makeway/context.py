"""Which cluster the command talks to.

Looked at in this order: ``MAKEWAY_URL`` with ``MAKEWAY_TOKEN``; ``context.json`` in the folder of ``--state``, of
``MAKEWAY_STATE``, or in ``$XDG_STATE_HOME/makeway/default`` (``~/.local/state``). ``makeway up`` writes that file,
readable by its owner alone.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from makeway.errors import MakewayError, NoCluster

CONTEXT_NAME: Final = "context.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """An address with its token; ``state_dir`` is the cluster's state folder where it is local."""

    url: str
    token: str = field(repr=False)
    state_dir: Path | None = None


class BadContext(MakewayError):
    """The context file cannot be used."""


def state_folder(explicit: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The state folder in force, absolute; it need not exist."""
    if explicit is not None:
        return explicit.expanduser().absolute()
    named = environment.get("MAKEWAY_STATE")
    if named:
        return Path(named).expanduser().absolute()
    return _state_home(environment) / "makeway" / "default"


def find_context(explicit: Path | None, environment: Mapping[str, str] = os.environ) -> Context:
    """The context in force. Raises NoCluster where there is none, BadContext where the file is spoiled."""
    url = environment.get("MAKEWAY_URL")
    if url and explicit is None:
        return Context(url=url.rstrip("/"), token=environment.get("MAKEWAY_TOKEN", ""))
    folder = state_folder(explicit, environment)
    path = folder / CONTEXT_NAME
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Context(url=raw["url"].rstrip("/"), token=raw["token"], state_dir=folder)
    except FileNotFoundError:
        raise NoCluster(path) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadContext(f"{path} cannot be used ({error!r}); `makeway up` writes it again") from error


def _state_home(environment: Mapping[str, str]) -> Path:
    named = environment.get("XDG_STATE_HOME")
    return Path(named) if named and Path(named).is_absolute() else Path.home() / ".local" / "state"
