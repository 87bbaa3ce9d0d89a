"""signs of life"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0014_signs_of_life"
down_revision = "0013_commands_by_node"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0014_signs_of_life")
