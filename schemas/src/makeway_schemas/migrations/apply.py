"""Runs one numbered SQL file inside the migration's transaction."""

from pathlib import Path
from typing import Any

from alembic import op

SQL_FOLDER = Path(__file__).parent / "sql"


def apply_sql(name: str) -> None:
    """Run ``sql/<name>.sql``, which may hold many statements, through the driver itself."""
    sql = (SQL_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    connection: Any = op.get_bind().connection.dbapi_connection
    connection.run_async(lambda driver: driver.execute(sql))
