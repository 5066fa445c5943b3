"""Limits of what comes in and goes out: truth, not projection."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "limits",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("limit_of", sa.Text, nullable=False),
        sa.Column("direction", sa.String(3), nullable=False),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("amounts", sa.JSON, nullable=False))
