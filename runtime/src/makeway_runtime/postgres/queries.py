"""Named statements. SQL lives in each service's `sql/queries.sql`, never in Python strings."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import aiosql


def load_queries(package: str) -> Any:
    """Loads `sql/queries.sql` of a package, e.g. `makeway_scheduler`; each named statement becomes a method.

    The methods are made from the file, so their type is not known here; a service's `store.py` wraps them in typed
    functions. Raises aiosql's SQLParseException or SQLLoadException when the file is broken or missing.
    """
    text = files(package).joinpath("sql", "queries.sql").read_text(encoding="utf-8")
    # Parameters are named in the statements already; a list of them after each name would say it twice.
    return aiosql.from_str(text, "asyncpg", mandatory_parameters=False)
