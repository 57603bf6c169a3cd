"""Alembic's entry: runs on the connection that `infra.catalog.engine` hands over."""

from alembic import context

from infra.catalog.tables import Table

context.configure(connection=context.config.attributes["connection"], target_metadata=Table.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
