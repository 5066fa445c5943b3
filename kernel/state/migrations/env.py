"""Alembic's entry: the connection is handed in by `kernel.state.catalogue.upgrade`, transaction included."""
from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
