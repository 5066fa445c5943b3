"""What was changed while no hub ran, until one has written it to its audit topic: truth, not projection."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "audit_waiting",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("message", sa.Text, nullable=False))
