"""Brings a database to the newest schema: ``python -m makeway_schemas.migrate`` with MAKEWAY_POSTGRES_DSN set.

Needs the extra ``migrate`` (Alembic, SQLAlchemy, asyncpg). Safe to run twice and by two at once.
"""

import os
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from alembic import command
from alembic.config import Config
from sqlalchemy import URL


def upgrade(dsn: str) -> None:
    """Apply every migration that the database lacks. ``dsn``: a ``postgresql://`` address, ``host=`` in its query."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    url, connect_args = _for_sqlalchemy(dsn)
    config.attributes["url"] = url
    config.attributes["connect_args"] = connect_args
    command.upgrade(config, "head")


def _for_sqlalchemy(dsn: str) -> tuple[URL, dict[str, str | int]]:
    parts = urlsplit(dsn)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    connect_args: dict[str, str | int] = {}
    host = parts.hostname or query.pop("host", None)
    if host is not None:
        connect_args["host"] = unquote(host)
    port = parts.port or query.pop("port", None)
    if port is not None:
        connect_args["port"] = int(port)
    for name, value in query.items():
        connect_args["ssl" if name == "sslmode" else name] = value
    url = URL.create(
        "postgresql+asyncpg",
        username=unquote(parts.username) if parts.username else query.get("user"),
        password=unquote(parts.password) if parts.password else None,
        database=unquote(parts.path.lstrip("/")) or None,
    )
    return url, connect_args


if __name__ == "__main__":
    address = os.environ.get("MAKEWAY_POSTGRES_DSN")
    if not address:
        sys.exit("MAKEWAY_POSTGRES_DSN must name the database to migrate")
    upgrade(address)
