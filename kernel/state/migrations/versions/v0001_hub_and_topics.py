"""The projection's position, and topics."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "hub",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("uuid", sa.Uuid, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False))
    op.create_table(
        "topics",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("uuid", sa.Uuid, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.String(249), nullable=False),
        sa.Column("queues", sa.Integer, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False))
    op.create_index("ix_topics_name", "topics", ["name"])
