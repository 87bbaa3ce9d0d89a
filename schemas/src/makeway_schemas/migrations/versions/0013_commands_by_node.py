"""commands by node"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0013_commands_by_node"
down_revision = "0012_idempotency_keys_by_age"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0013_commands_by_node")
