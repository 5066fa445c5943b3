"""What a topic is made of is called a partition, as in the code."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("topics") as topics:
        topics.alter_column("queues", new_column_name="partitions", existing_type=sa.Integer, existing_nullable=False)
    with op.batch_alter_table("groups") as groups:
        groups.alter_column("queue_id", new_column_name="partition_id", existing_type=sa.BigInteger,
                            existing_nullable=False)
