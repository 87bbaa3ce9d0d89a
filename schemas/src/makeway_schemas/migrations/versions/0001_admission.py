"""admission"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0001_admission"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0001_admission")
