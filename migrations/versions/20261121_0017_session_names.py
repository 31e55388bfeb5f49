"""Find sessions by any part of their name.

The extension pg_trgm comes with Postgres; since Postgres 13 whoever may create objects in the database may install it.

Revision: 0017_session_names
Revises: 0016_list_indexes
"""

import sqlalchemy as sa
from alembic import op

revision = "0017_session_names"
down_revision = "0016_list_indexes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    op.create_table(
        "session_names",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pool_id", "session", name=op.f("pk_session_names")),
    )
    op.execute(
        "CREATE FUNCTION note_session_names() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO session_names (pool_id, session) SELECT pool_id, session FROM made ON CONFLICT DO NOTHING; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER note_session_names AFTER INSERT ON sessions REFERENCING NEW TABLE AS made "
        "FOR EACH STATEMENT EXECUTE FUNCTION note_session_names()"
    )
    op.execute("INSERT INTO session_names (pool_id, session) SELECT pool_id, session FROM sessions ON CONFLICT DO NOTHING")
    op.create_foreign_key(
        op.f("fk_session_names_pool_id_session"),
        "session_names",
        "sessions",
        ["pool_id", "session"],
        ["pool_id", "session"],
        ondelete="CASCADE",
    )
    op.create_index(
        op.f("ix_session_names_session"), "session_names", ["session"], postgresql_using="gin", postgresql_ops={"session": "gin_trgm_ops"}
    )


def downgrade() -> None:
    # the extension stays: it may have been there before, and others may use it
    op.drop_table("session_names")
    op.execute("DROP TRIGGER note_session_names ON sessions")
    op.execute("DROP FUNCTION note_session_names()")
