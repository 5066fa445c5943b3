"""Users, their API keys and the rules of the rights: truth, not projection."""
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("tenants", sa.JSON, nullable=False),
        sa.Column("user_groups", sa.JSON, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("messages_per_s", sa.Float, nullable=False),
        sa.Column("bytes_per_s", sa.Float, nullable=False),
        sa.Column("password_hash", sa.Text, nullable=False),
        sa.Column("scram", sa.JSON, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False))
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("user_name", sa.String(255), nullable=False, index=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("restriction", sa.JSON, nullable=True),
        sa.Column("created_ms", sa.BigInteger, nullable=False))
    op.create_table(
        "acl",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("effect", sa.String(5), nullable=False),
        sa.Column("who", sa.String(261), nullable=False),
        sa.Column("operations", sa.JSON, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("pattern", sa.Text, nullable=False),
        sa.Column("tenant", sa.String(255), nullable=False))
