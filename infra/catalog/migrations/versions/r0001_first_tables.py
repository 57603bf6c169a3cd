"""The first tables: artifacts, files, inputs, attempts, observations, decisions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
WHEN = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("asset", sa.Text, nullable=False),
        sa.Column("partition", sa.Text),
        sa.Column("recipe", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("program", sa.Text),
        sa.Column("version", sa.Text),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("stats", JSON, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("file_count", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("captured_at", WHEN),
        sa.Column("code_commit", sa.Text),
        sa.Column("user", sa.Text),
        sa.Column("host", sa.Text),
        sa.PrimaryKeyConstraint("url", name="pk_artifacts"),
    )
    op.create_table(
        "files",
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("url", "name", name="pk_files"),
        sa.ForeignKeyConstraint(["url"], ["artifacts.url"], name="fk_files_url_artifacts", ondelete="CASCADE"),
    )
    op.create_table(
        "inputs",
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("url", "name", "partition", name="pk_inputs"),
        sa.ForeignKeyConstraint(["url"], ["artifacts.url"], name="fk_inputs_url_artifacts", ondelete="CASCADE"),
    )
    op.create_table(
        "attempts",
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("token", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("asset", sa.Text, nullable=False),
        sa.Column("partition", sa.Text),
        sa.Column("recipe", sa.Text, nullable=False),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("extra", JSON, nullable=False),
        sa.Column("ended", sa.Text),
        sa.Column("detail", JSON),
        sa.PrimaryKeyConstraint("url", "token", name="pk_attempts"),
    )
    op.create_table(
        "observations",
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", JSON),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("at", WHEN, nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_observations"),
    )
    op.create_table(
        "decisions",
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("at", WHEN, nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_decisions"),
    )
    for table, columns in INDEXED.items():
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column])


def downgrade() -> None:
    for table in ("decisions", "observations", "attempts", "inputs", "files", "artifacts"):
        op.drop_table(table)


INDEXED = {
    "artifacts": ("asset", "recipe", "digest"),
    "files": ("sha256",),
    "inputs": ("digest",),
    "attempts": ("asset", "uid"),
    "observations": ("digest", "name"),
    "decisions": ("digest", "name"),
}
