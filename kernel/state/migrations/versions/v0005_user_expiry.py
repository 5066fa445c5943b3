"""When a user's account ends."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("users", sa.Column("expires_ms", sa.BigInteger, nullable=False, server_default="0"))
