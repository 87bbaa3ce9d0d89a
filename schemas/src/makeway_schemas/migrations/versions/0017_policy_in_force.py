"""policy in force"""

from makeway_schemas.migrations.apply import apply_sql

revision = "0017_policy_in_force"
down_revision = "0016_avoidance"
branch_labels = None
depends_on = None


def upgrade() -> None:
    apply_sql("0017_policy_in_force")
