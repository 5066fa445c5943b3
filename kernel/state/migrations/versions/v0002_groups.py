"""Committed offsets. The projection is filled anew, since rows of a database from before know nothing of groups."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "groups",
        sa.Column("group_hash", sa.String(32), primary_key=True),
        sa.Column("queue_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("committed_offset", sa.BigInteger, nullable=False))
    op.execute("DELETE FROM hub")
