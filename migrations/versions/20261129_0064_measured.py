"""The whole schema, as it was before the first release.

It replaces the first 64 revisions and has the number and name of the last of them, so a database that was made by these
revisions already counts as being at this revision.

Revision: 0064_measured Revises: nothing
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0064_measured"
down_revision = None
branch_labels = None
depends_on = None

_PAID_OFF = (
    "CASE WHEN actual_ttft_seconds >= predicted_source_ttft_seconds THEN false "
    "WHEN actual_ttft_seconds < predicted_source_ttft_seconds AND benefit_seconds > 0::double precision THEN true "
    "ELSE NULL::boolean END"
)
_OF_PEOPLE = (
    "NOT (role IN ('system-operator', 'system-router') OR left(action, 9) = 'operator.' "
    "OR (role = 'cluster' AND source ~ 'autoscaler|controller|operator'))"
)


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")  # Postgres has it; who may create objects in the database may install it
    _pools()
    _sessions()
    _moves()
    _decisions()
    _rejections()
    _loads()
    _slo()
    _scaling()
    _schedules()
    _reports()
    _plans()
    _simulations()
    _access()
    _audit()
    _keep_the_audit_log()
    _note_session_names()
    _queue_moves()
    op.execute("CREATE AGGREGATE joined_values(real[]) (SFUNC = array_cat, STYPE = real[], INITCOND = '{}')")


def downgrade() -> None:
    op.execute(
        """
        DO $$ BEGIN
            IF EXISTS (SELECT FROM audit_log) THEN
                RAISE EXCEPTION 'the audit log has entries; export them and delete them first' USING ERRCODE = 'object_in_use';
            END IF;
        END $$
        """
    )
    op.execute(
        "DROP TABLE pools, routers, instance_transitions, instances, pool_events, pool_revisions, predictor_models, "
        "router_acknowledgements, routing_tables, bindings, lost_moves, sessions, session_names, migrations, "
        "move_rollup_queue, move_rollups_1h, move_rollups_1m, reroutes, decisions, kept_sessions, rejections, arrivals, "
        "heatmap_columns, load_rollups_10s, load_rollups_1m, load_samples, pool_rollups_10s, pool_rollups_1h, "
        "pool_rollups_1m, rollup_queue, slo_configs, slo_rollups_1h, slo_rollups_1m, slo_samples, scaling_decisions, "
        "wanted_replicas, schedule_runs, reports, plans, engine_fits, recorded_requests, simulations, api_tokens, "
        "gateway_keys, login_links, users, web_sessions, gateway_key_use, audit_heads, audit_log, cluster_changes"
    )
    for function in ("audit_log_is_append_only", "note_session_names", "queue_moves"):
        op.execute(f"DROP FUNCTION {function}()")
    op.execute("DROP AGGREGATE joined_values(real[])")
    # the extension stays: it may have been there before, and others may use it


def _keep_the_audit_log() -> None:
    op.execute(
        """
        CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'audit_log is append-only' USING ERRCODE = 'insufficient_privilege';
        END $$
        """
    )
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
        "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only()"
    )


def _note_session_names() -> None:
    op.execute(
        "CREATE FUNCTION note_session_names() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO session_names (pool_id, session) SELECT pool_id, session FROM made ON CONFLICT DO NOTHING; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER note_session_names AFTER INSERT ON sessions REFERENCING NEW TABLE AS made "
        "FOR EACH STATEMENT EXECUTE FUNCTION note_session_names()"
    )


def _queue_moves() -> None:
    op.execute(
        "CREATE FUNCTION queue_moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO move_rollup_queue (pool_id, minute) "
        "SELECT DISTINCT pool_id, date_bin('1 minute', at, TIMESTAMPTZ 'epoch') FROM changed; RETURN NULL; END $$"
    )
    for table in ("migrations", "reroutes"):
        for event in ("insert", "update"):
            op.execute(
                f"CREATE TRIGGER queue_moves_{event} AFTER {event.upper()} ON {table} REFERENCING NEW TABLE AS changed "
                "FOR EACH STATEMENT EXECUTE FUNCTION queue_moves()"
            )


def _columns(
    kind: sa.types.TypeEngine[Any], *names: str, nullable: bool = False, server_default: str | None = None
) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=nullable, server_default=server_default) for name in names]


def _pools() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        *_columns(sa.Text(), "namespace", "name", "uid"),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        *_columns(sa.Text(), "resource_version", "model"),
        sa.Column("spec", postgresql.JSONB(), nullable=False),
        *_columns(postgresql.JSONB(), "spec_in_force", "facts", nullable=True),
        *_columns(postgresql.JSONB(), "labels", "annotations"),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("conditions", postgresql.JSONB(), nullable=False),
        sa.Column("desired", postgresql.JSONB(), nullable=True),
        *_columns(sa.BigInteger(), "table_version", "revision", "slo_version", server_default="0"),
        *_columns(sa.DateTime(timezone=True), "created_at", "observed_at"),
        *_columns(sa.DateTime(timezone=True), "deleted_at", "starts_noted_at", nullable=True),
        sa.Column("measured", postgresql.JSONB(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
        sa.UniqueConstraint("namespace", "name", name=op.f("uq_pools_namespace_name")),
    )
    op.create_table(
        "routers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *_columns(sa.DateTime(timezone=True), "last_seen_at", "sent_at"),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        *_columns(postgresql.JSONB(), "acknowledged", "in_flight"),
        *_columns(postgresql.JSONB(), "use", "troubled_engines", "known_caches", "learnt_figures", server_default="{}"),
        sa.Column("asked_at", postgresql.JSONB(), nullable=True),
        sa.Column("shares", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_routers")),
    )
    op.create_table(
        "instance_transitions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        *_columns(sa.Text(), "after", "reason"),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_instance_transitions_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_transitions")),
    )
    op.create_index(op.f("ix_instance_transitions_at"), "instance_transitions", ["at"])
    op.create_index(
        "ix_instance_transitions_pool_id_at",
        "instance_transitions",
        ["pool_id", "at"],
        postgresql_where=sa.text("after = 'Lost' OR before = 'Lost'"),
    )
    op.create_index(op.f("ix_instance_transitions_pool_id_instance_at"), "instance_transitions", ["pool_id", "instance", "at"])
    op.create_table(
        "instances",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        *_columns(sa.Text(), "id", "pod_uid"),
        sa.Column("address", sa.Text(), nullable=True),
        *_columns(sa.Text(), "role", "state", "reason"),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=False),
        *_columns(sa.BigInteger(), "restarts", "anchors", server_default="0"),
        sa.Column("key_share", sa.Double(), server_default="0", nullable=False),
        sa.Column("table_version", sa.BigInteger(), server_default="0", nullable=False),
        *_columns(sa.DateTime(timezone=True), "created_at", "state_since"),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_instances_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "id", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_pool_id_created_at"), "instances", ["pool_id", "created_at"], postgresql_where=sa.text("gone_at IS NULL")
    )
    op.create_table(
        "pool_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.Text(), "reason", "message"),
        sa.Column("instance", sa.Text(), nullable=True),
        *_columns(postgresql.JSONB(), "before", "after", nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_events_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool_events")),
        sa.UniqueConstraint("pool_id", "at", "reason", "message", name=op.f("uq_pool_events_pool_id_at_reason_message")),
    )
    op.create_index(op.f("ix_pool_events_at"), "pool_events", ["at"])
    op.create_table(
        "pool_revisions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        *_columns(postgresql.JSONB(), "spec", "diff"),
        sa.Column("resource_version", sa.BigInteger(), nullable=True),
        sa.Column("manager", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_revisions_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "number", name=op.f("pk_pool_revisions")),
    )
    op.create_table(
        "predictor_models",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        *_columns(sa.Integer(), "pool_id", "version"),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("figures", postgresql.JSONB(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_predictor_models_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_predictor_models")),
        sa.UniqueConstraint("pool_id", "model", name=op.f("uq_predictor_models_pool_id_model")),
        sa.UniqueConstraint("pool_id", "version", name=op.f("uq_predictor_models_pool_id_version")),
    )
    op.create_index(op.f("ix_predictor_models_at_id"), "predictor_models", ["at", "id"])
    op.create_table(
        "router_acknowledgements",
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_router_acknowledgements_pool_id")),
        sa.ForeignKeyConstraint(["router"], ["routers.id"], name=op.f("fk_router_acknowledgements_router")),
        sa.PrimaryKeyConstraint("router", "pool_id", "version", name=op.f("pk_router_acknowledgements")),
    )
    op.create_table(
        "routing_tables",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("content", postgresql.JSONB(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_routing_tables_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "version", name=op.f("pk_routing_tables")),
    )


def _sessions() -> None:
    op.create_table(
        "bindings",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        *_columns(sa.Text(), "instance", "reason", "router"),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("migration", sa.Text(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.CheckConstraint("released_at >= bound_at", name=op.f("ck_bindings_ends_after_it_began")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_bindings_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "session", "version", name=op.f("pk_bindings")),
    )
    op.create_index(op.f("ix_bindings_released_at"), "bindings", ["released_at"])
    op.create_table(
        "lost_moves",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.Column("moves", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_lost_moves_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "router", "minute", name=op.f("pk_lost_moves")),
    )
    op.create_table(
        "sessions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        *_columns(sa.Text(), "reason", "router"),
        sa.Column("bound_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("migrated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.BigInteger(), "migrations", "context_tokens", server_default="0"),
        sa.Column("change", sa.Text(), nullable=True),
        sa.Column("shared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_sessions_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "session", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_instance_last_seen_at"), "sessions", ["instance", "last_seen_at"])
    op.create_index(op.f("ix_sessions_last_seen_at"), "sessions", ["last_seen_at"])
    op.create_index(op.f("ix_sessions_pool_id_instance"), "sessions", ["pool_id", "instance"])
    op.create_index(op.f("ix_sessions_pool_id_last_seen_at"), "sessions", ["pool_id", "last_seen_at"])
    op.create_table(
        "session_names",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pool_id", "session"],
            ["sessions.pool_id", "sessions.session"],
            name=op.f("fk_session_names_pool_id_session"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("pool_id", "session", name=op.f("pk_session_names")),
    )
    op.create_index(
        op.f("ix_session_names_session"), "session_names", ["session"], postgresql_using="gin", postgresql_ops={"session": "gin_trgm_ops"}
    )


def _moves() -> None:
    op.create_table(
        "migrations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=True),
        *_columns(sa.Text(), "source", "target", "trigger"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        *_columns(
            sa.Double(),
            "predicted_source_ttft_seconds",
            "predicted_target_ttft_seconds",
            "benefit_seconds",
            "actual_ttft_seconds",
            nullable=True,
        ),
        *_columns(sa.BigInteger(), "tokens_moved", "tokens_recomputed", server_default="0"),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column(
            "paid_off",
            sa.Boolean(),
            sa.Computed(
                _PAID_OFF,
                persisted=True,
            ),
            nullable=True,
        ),
        *_columns(sa.Integer(), "source_rank", "target_rank", nullable=True),
        *_columns(sa.Double(), "crossed", "threshold", nullable=True),
        sa.Column("crossed_unit", sa.Text(), nullable=True),
        *_columns(sa.BigInteger(), "source_hit_tokens", "target_hit_tokens", nullable=True),
        sa.Column("least_gain_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_migrations_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_migrations")),
    )
    op.create_index(op.f("ix_migrations_at_id"), "migrations", ["at", "id"])
    op.create_index(op.f("ix_migrations_outcome_at"), "migrations", ["outcome", "at"])
    op.create_index(op.f("ix_migrations_pool_id_at"), "migrations", ["pool_id", "at"])
    op.create_index(
        "ix_migrations_rare_outcomes",
        "migrations",
        ["outcome", "at"],
        postgresql_include=[
            "pool_id",
            "source",
            "target",
            "trigger",
            "predicted_source_ttft_seconds",
            "actual_ttft_seconds",
            "paid_off",
            "tokens_moved",
            "tokens_recomputed",
        ],
        postgresql_where=sa.text("outcome NOT IN ('underway', 'completed')"),
    )
    op.create_index(op.f("ix_migrations_recorded_at"), "migrations", ["recorded_at"])
    op.create_index(op.f("ix_migrations_session_at"), "migrations", ["session", "at"])
    op.create_index(op.f("ix_migrations_source_at"), "migrations", ["source", "at"])
    op.create_index(op.f("ix_migrations_target_at"), "migrations", ["target", "at"])
    op.create_index(op.f("ix_migrations_trigger_at"), "migrations", ["trigger", "at"])
    op.create_table(
        "move_rollup_queue",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_move_rollup_queue_pool_id")),
    )
    op.create_index(op.f("ix_move_rollup_queue_pool_id_minute"), "move_rollup_queue", ["pool_id", "minute"])
    for name in ("move_rollups_1h", "move_rollups_1m"):
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            *_columns(sa.BigInteger(), "migrations", "reroutes", "compared", server_default="0"),
            sa.Column("seconds_won", sa.Double(), server_default="0", nullable=False),
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", name=op.f(f"pk_{name}")),
        )
    op.create_table(
        "reroutes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        *_columns(sa.Text(), "request", "source", "target", "trigger"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        *_columns(
            sa.Double(),
            "predicted_source_ttft_seconds",
            "predicted_target_ttft_seconds",
            "benefit_seconds",
            "actual_ttft_seconds",
            nullable=True,
        ),
        *_columns(sa.BigInteger(), "tokens_moved", "tokens_recomputed", server_default="0"),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column(
            "paid_off",
            sa.Boolean(),
            sa.Computed(
                _PAID_OFF,
                persisted=True,
            ),
            nullable=True,
        ),
        *_columns(sa.Integer(), "source_rank", "target_rank", nullable=True),
        *_columns(sa.Double(), "crossed", "threshold", nullable=True),
        sa.Column("crossed_unit", sa.Text(), nullable=True),
        *_columns(sa.BigInteger(), "source_hit_tokens", "target_hit_tokens", nullable=True),
        sa.Column("least_gain_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_reroutes_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reroutes")),
    )
    op.create_index(op.f("ix_reroutes_at_id"), "reroutes", ["at", "id"])
    op.create_index(op.f("ix_reroutes_outcome_at"), "reroutes", ["outcome", "at"])
    op.create_index(op.f("ix_reroutes_pool_id_at"), "reroutes", ["pool_id", "at"])
    op.create_index(
        "ix_reroutes_rare_outcomes",
        "reroutes",
        ["outcome", "at"],
        postgresql_include=[
            "pool_id",
            "source",
            "target",
            "trigger",
            "predicted_source_ttft_seconds",
            "actual_ttft_seconds",
            "paid_off",
            "tokens_moved",
            "tokens_recomputed",
        ],
        postgresql_where=sa.text("outcome NOT IN ('underway', 'completed')"),
    )
    op.create_index(op.f("ix_reroutes_recorded_at"), "reroutes", ["recorded_at"])
    op.create_index(op.f("ix_reroutes_session_at"), "reroutes", ["session", "at"])
    op.create_index(op.f("ix_reroutes_source_at"), "reroutes", ["source", "at"])
    op.create_index(op.f("ix_reroutes_target_at"), "reroutes", ["target", "at"])
    op.create_index(op.f("ix_reroutes_trigger_at"), "reroutes", ["trigger", "at"])


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *_columns(sa.Text(), "router", "policy"),
        sa.Column("table_version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("chosen", sa.Text(), nullable=False),
        sa.Column("runner_up", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        *_columns(sa.Double(), "queued_seconds", "held_seconds", "ttft_seconds", nullable=True),
        sa.Column("sample_rate", sa.Double(), nullable=False),
        sa.Column("candidates", postgresql.JSONB(), nullable=False),
        sa.Column("weighing", postgresql.JSONB(), nullable=True),
        *_columns(sa.Text(), "served_by", "decode", nullable=True),
        sa.Column("priority_class", sa.Text(), server_default="default", nullable=False),
        sa.Column("named", sa.Text(), nullable=True),
        *_columns(sa.Integer(), "chosen_rank", "runner_up_rank", "served_by_rank", "decode_rank", nullable=True),
        *_columns(sa.Text(), "kept", "outcome", "rejection", "client_request", nullable=True),
        *_columns(sa.Double(), "tpot_seconds", "ttft_target_seconds", "tpot_target_seconds", nullable=True),
        sa.Column("attempts", postgresql.JSONB(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_decisions_pool_id")),
        sa.PrimaryKeyConstraint("id", "at", name=op.f("pk_decisions")),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index(op.f("ix_decisions_at_id"), "decisions", ["at", "id"])
    op.create_index(op.f("ix_decisions_chosen_at"), "decisions", ["chosen", "at"])
    op.create_index(op.f("ix_decisions_client_request_at"), "decisions", ["client_request", "at"])
    op.create_index(op.f("ix_decisions_pool_id_at"), "decisions", ["pool_id", "at"])
    op.create_index(op.f("ix_decisions_reason_at"), "decisions", ["reason", "at"])
    op.create_index(op.f("ix_decisions_recorded_at"), "decisions", ["recorded_at"])
    op.create_index(op.f("ix_decisions_request_at"), "decisions", ["request", "at"])
    op.create_index(op.f("ix_decisions_session_at"), "decisions", ["session", "at"])
    op.create_table(
        "kept_sessions",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_kept_sessions_pool_id_pools")),
        sa.PrimaryKeyConstraint("pool_id", "session", name=op.f("pk_kept_sessions")),
    )


def _rejections() -> None:
    op.create_table(
        "rejections",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("sample_request", sa.Text(), nullable=False),
        sa.Column("sample_prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("retry_after_seconds", sa.Double(), nullable=False),
        sa.Column("predicted_ttft_seconds", sa.Double(), nullable=True),
        sa.Column("priority_class", sa.Text(), server_default="default", nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_rejections_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_rejections_pool_id_second"), "rejections", ["pool_id", "second"])


def _loads() -> None:
    op.create_table(
        "arrivals",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.BigInteger(), "requests", "prompt_tokens", server_default="0"),
        sa.Column("prompt_tokens_squared", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_arrivals_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_arrivals_pool_id_second"), "arrivals", ["pool_id", "second"])
    op.create_table(
        "heatmap_columns",
        *_columns(sa.Integer(), "pool_id", "step"),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("roster", sa.Text(), nullable=False),
        sa.Column("instances", sa.JSON(), nullable=False),
        *_columns(
            sa.JSON(),
            "pending_prefill_tokens_max",
            "pending_prefill_tokens_sum",
            "pending_prefill_tokens_n",
            "running_max",
            "running_sum",
            "running_n",
            "waiting_max",
            "waiting_sum",
            "waiting_n",
            "in_flight_max",
            "in_flight_sum",
            "in_flight_n",
            "kv_usage_max",
            "kv_usage_sum",
            "kv_usage_n",
            "ttft_p95_max",
            "ttft_p95_sum",
            "ttft_p95_n",
            "tpot_p95_max",
            "tpot_p95_sum",
            "tpot_p95_n",
            "hit_rate_max",
            "hit_rate_sum",
            "hit_rate_n",
            "requests_max",
            "requests_sum",
            "requests_n",
            "failed_max",
            "failed_sum",
            "failed_n",
            nullable=True,
        ),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_heatmap_columns_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "step", "bucket", name=op.f("pk_heatmap_columns")),
    )
    op.create_index(op.f("ix_heatmap_columns_step_bucket"), "heatmap_columns", ["step", "bucket"])
    for name in ("load_rollups_10s", "load_rollups_1m"):
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            sa.Column("instance", sa.Text(), nullable=False),
            sa.Column("pending_prefill_tokens_max", sa.REAL(), nullable=True),
            sa.Column("pending_prefill_tokens_sum", sa.Double(), nullable=True),
            sa.Column("pending_prefill_tokens_n", sa.Integer(), nullable=False),
            sa.Column("running_max", sa.REAL(), nullable=True),
            sa.Column("running_sum", sa.Double(), nullable=True),
            sa.Column("running_n", sa.Integer(), nullable=False),
            sa.Column("waiting_max", sa.REAL(), nullable=True),
            sa.Column("waiting_sum", sa.Double(), nullable=True),
            sa.Column("waiting_n", sa.Integer(), nullable=False),
            sa.Column("in_flight_max", sa.REAL(), nullable=True),
            sa.Column("in_flight_sum", sa.Double(), nullable=True),
            sa.Column("in_flight_n", sa.Integer(), nullable=False),
            sa.Column("kv_usage_max", sa.REAL(), nullable=True),
            sa.Column("kv_usage_sum", sa.Double(), nullable=True),
            sa.Column("kv_usage_n", sa.Integer(), nullable=False),
            sa.Column("ttft_p95_max", sa.REAL(), nullable=True),
            sa.Column("ttft_p95_sum", sa.Double(), nullable=True),
            sa.Column("ttft_p95_n", sa.Integer(), nullable=False),
            sa.Column("tpot_p95_max", sa.REAL(), nullable=True),
            sa.Column("tpot_p95_sum", sa.Double(), nullable=True),
            sa.Column("tpot_p95_n", sa.Integer(), nullable=False),
            sa.Column("hit_rate_max", sa.REAL(), nullable=True),
            sa.Column("hit_rate_sum", sa.Double(), nullable=True),
            sa.Column("hit_rate_n", sa.Integer(), nullable=False),
            sa.Column("requests_max", sa.REAL(), nullable=True),
            sa.Column("requests_sum", sa.Double(), nullable=True),
            sa.Column("requests_n", sa.Integer(), nullable=False),
            sa.Column("failed_max", sa.REAL(), nullable=True),
            sa.Column("failed_sum", sa.Double(), nullable=True),
            sa.Column("failed_n", sa.Integer(), nullable=False),
            *_columns(
                sa.BigInteger(),
                "requests_total",
                "completed",
                "failed_total",
                "cancelled",
                "prompt_tokens",
                "hit_tokens",
                "output_tokens",
                "ttft_within_slo",
                "ttft_total",
                "tpot_within_slo",
                "tpot_total",
                "within_slo",
                "judged_by_slo",
                "generated_tokens",
                server_default="0",
            ),
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", "instance", name=op.f(f"pk_{name}")),
        )
    op.create_table(
        "load_samples",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        *_columns(sa.Text(), "router", "instance"),
        *_columns(sa.DateTime(timezone=True), "second", "sent_at"),
        *_columns(sa.BigInteger(), "running", "waiting", "pending_prefill_tokens", "in_flight", server_default="0"),
        sa.Column("kv_usage", sa.REAL(), nullable=True),
        *_columns(
            sa.BigInteger(),
            "requests",
            "completed",
            "failed",
            "cancelled",
            "prompt_tokens",
            "hit_tokens",
            "output_tokens",
            server_default="0",
        ),
        *_columns(postgresql.ARRAY(sa.REAL()), "ttft_seconds", "tpot_seconds"),
        *_columns(sa.BigInteger(), "ttft_within_slo", "ttft_total", server_default="0"),
        *_columns(
            sa.BigInteger(),
            "tpot_within_slo",
            "tpot_total",
            "within_slo",
            "judged_by_slo",
            "prefilled_tokens",
            "generated_tokens",
            nullable=True,
        ),
        sa.Column("prefilling_seconds", sa.REAL(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_load_samples_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_load_samples_pool_id_second"), "load_samples", ["pool_id", "second"])
    for name in ("pool_rollups_10s", "pool_rollups_1h", "pool_rollups_1m"):
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            sa.Column("seconds", sa.Integer(), nullable=False),
            sa.Column("instance_seconds", sa.BigInteger(), nullable=False),
            *_columns(sa.Double(), "running", "waiting", "pending_prefill_tokens", "kv_usage_sum", nullable=True),
            sa.Column("kv_usage_n", sa.BigInteger(), nullable=False),
            *_columns(
                sa.BigInteger(),
                "requests_total",
                "completed",
                "failed_total",
                "cancelled",
                "prompt_tokens",
                "hit_tokens",
                "output_tokens",
                "ttft_within_slo",
                "ttft_total",
                "tpot_within_slo",
                "tpot_total",
                "within_slo",
                "judged_by_slo",
                "generated_tokens",
                server_default="0",
            ),
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", name=op.f(f"pk_{name}")),
        )
    op.create_table(
        "rollup_queue",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_rollup_queue_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "bucket", "router", name=op.f("pk_rollup_queue")),
    )


def _slo() -> None:
    op.create_table(
        "slo_configs",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        *_columns(sa.Double(), "ttft_seconds", "tpot_seconds", "percentile"),
        sa.Column("active_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("active_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("classes", postgresql.JSONB(), server_default="[]", nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_slo_configs_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "version", name=op.f("pk_slo_configs")),
    )
    for name in ("slo_rollups_1h", "slo_rollups_1m"):
        op.create_table(
            name,
            sa.Column("pool_id", sa.Integer(), nullable=False),
            sa.Column("bucket", sa.DateTime(timezone=True), nullable=False),
            sa.Column("priority_class", sa.Text(), nullable=False),
            sa.Column("slo_version", sa.BigInteger(), nullable=False),
            *_columns(
                sa.BigInteger(),
                "judged",
                "within_slo",
                "ttft_within_slo",
                "tpot_within_slo",
                "tpot_total",
                "refused",
                "failed",
                server_default="0",
            ),
            sa.Column("cells", postgresql.ARRAY(sa.Integer()), nullable=False),
            sa.Column("counts", postgresql.ARRAY(sa.BigInteger()), nullable=False),
            sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f(f"fk_{name}_pool_id")),
            sa.PrimaryKeyConstraint("pool_id", "bucket", "priority_class", "slo_version", name=op.f(f"pk_{name}")),
        )
    op.create_table(
        "slo_samples",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("second", sa.DateTime(timezone=True), nullable=False),
        sa.Column("priority_class", sa.Text(), server_default="default", nullable=False),
        sa.Column("slo_version", sa.BigInteger(), nullable=True),
        *_columns(
            sa.BigInteger(),
            "judged",
            "within_slo",
            "ttft_within_slo",
            "tpot_within_slo",
            "tpot_total",
            "refused",
            "failed",
            server_default="0",
        ),
        sa.Column("cells", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("counts", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_slo_samples_pool_id")),
        postgresql_partition_by="RANGE (second)",
    )
    op.create_index(op.f("ix_slo_samples_pool_id_second"), "slo_samples", ["pool_id", "second"])


def _scaling() -> None:
    op.create_table(
        "scaling_decisions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.Text(), "controller", "role", "mode"),
        *_columns(sa.BigInteger(), "current", "recommended", "replicas"),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("hold", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        *_columns(sa.BigInteger(), "lower", "upper"),
        *_columns(sa.Text(), "lower_by", "upper_by", nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        *_columns(postgresql.JSONB(), "need", "imbalance", nullable=True),
        sa.Column("signals", postgresql.JSONB(), nullable=False),
        sa.Column("demand", postgresql.JSONB(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scaling_decisions_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scaling_decisions")),
    )
    op.create_index(op.f("ix_scaling_decisions_at_id"), "scaling_decisions", ["at", "id"])
    op.create_index(op.f("ix_scaling_decisions_pool_id_at"), "scaling_decisions", ["pool_id", "at"])
    op.create_table(
        "wanted_replicas",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.BigInteger(), nullable=True),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_wanted_replicas_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", "role", "at", name=op.f("pk_wanted_replicas")),
    )


def _schedules() -> None:
    op.create_table(
        "schedule_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        *_columns(sa.Text(), "uid", "schedule"),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closes", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        *_columns(sa.Text(), "reason", "overruled_by", nullable=True),
        *_columns(sa.DateTime(timezone=True), "opened_at", "closed_at", nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_schedule_runs_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_runs")),
        sa.UniqueConstraint("pool_id", "uid", "schedule", "start", name=op.f("uq_schedule_runs_pool_id_uid_schedule_start")),
    )
    op.create_index(op.f("ix_schedule_runs_pool_id_schedule_start"), "schedule_runs", ["pool_id", "schedule", "start"])
    op.create_index(op.f("ix_schedule_runs_start_id"), "schedule_runs", ["start", "id"])


def _reports() -> None:
    op.create_table(
        "reports",
        *_columns(sa.Text(), "router", "id"),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("receipt", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("router", "id", name=op.f("pk_reports")),
    )
    op.create_index(op.f("ix_reports_received_at"), "reports", ["received_at"])


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.Text(), "state", "uid"),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        *_columns(postgresql.JSONB(), "object", "change", "inverse", "diff", "effect"),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("patch", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("applied_by", sa.Text(), nullable=True),
        sa.Column("applied_generation", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("undo_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("undo_of", sa.Text(), nullable=True),
        sa.Column("seen", postgresql.JSONB(), nullable=True),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("begun", postgresql.JSONB(), nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_plans_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )
    op.create_index(op.f("ix_plans_created_at_id"), "plans", ["created_at", "id"])
    op.create_index(op.f("ix_plans_pool_id_created_at"), "plans", ["pool_id", "created_at"])


def _simulations() -> None:
    op.create_table(
        "engine_fits",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stored_by", sa.Text(), nullable=False),
        sa.Column("fit", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_engine_fits_pool_id")),
        sa.PrimaryKeyConstraint("pool_id", name=op.f("pk_engine_fits")),
    )
    op.create_table(
        "recorded_requests",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("router", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("session", sa.BigInteger(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("blocks", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("sample_rate", sa.REAL(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        *_columns(sa.REAL(), "sent_seconds", "ttft_seconds", "answer_seconds", nullable=True),
        *_columns(sa.BigInteger(), "engine_prompt_tokens", "cached_tokens", nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_recorded_requests_pool_id")),
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index(op.f("ix_recorded_requests_pool_id_at"), "recorded_requests", ["pool_id", "at"])
    op.create_table(
        "simulations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        *_columns(postgresql.JSONB(), "policies", "rates"),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("target", postgresql.JSONB(), nullable=False),
        *_columns(sa.DateTime(timezone=True), "start", "end", nullable=True),
        sa.Column("trace", sa.LargeBinary(), nullable=True),
        sa.Column("total", sa.BigInteger(), nullable=False),
        *_columns(sa.BigInteger(), "done", "attempts", server_default="0"),
        sa.Column("runner", sa.Text(), nullable=True),
        *_columns(sa.DateTime(timezone=True), "heard_at", "started_at", "finished_at", nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("results", postgresql.JSONB(), nullable=True),
        sa.Column("winner", sa.Integer(), nullable=True),
        sa.Column("notes", postgresql.JSONB(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        *_columns(postgresql.JSONB(), "plan_runs", "trialled", "sizing", "sized", nullable=True),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_simulations_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_simulations")),
    )
    op.create_index(op.f("ix_simulations_pool_id_created_at_id"), "simulations", ["pool_id", "created_at", "id"])
    op.create_index(
        "uq_simulations_asked_at_work",
        "simulations",
        ["pool_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('queued', 'running') AND plan IS NULL"),
    )
    op.create_index("uq_simulations_plan", "simulations", ["plan"], unique=True, postgresql_where=sa.text("plan IS NOT NULL"))
    op.create_index(
        "uq_simulations_sizing_at_work",
        "simulations",
        ["pool_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('queued', 'running') AND sizing IS NOT NULL"),
    )


def _access() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        *_columns(sa.Text(), "name", "role"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.DateTime(timezone=True), "last_used_at", "revoked_at", nullable=True),
        sa.Column("namespaces", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_api_tokens_token_hash")),
    )
    op.create_table(
        "gateway_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        *_columns(sa.Text(), "prefix", "name"),
        *_columns(postgresql.ARRAY(sa.Text()), "pools", "models"),
        *_columns(sa.BigInteger(), "requests_per_minute", "tokens_per_minute", nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        *_columns(sa.DateTime(timezone=True), "expires_at", "revoked_at", nullable=True),
        sa.Column("priority_class", sa.Text(), nullable=True),
        sa.Column("explain", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateway_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_gateway_keys_digest")),
    )
    op.create_index(op.f("ix_gateway_keys_created_at_id"), "gateway_keys", ["created_at", "id"])
    op.create_table(
        "login_links",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        *_columns(sa.Text(), "subject", "role", "created_by"),
        *_columns(sa.DateTime(timezone=True), "created_at", "expires_at"),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("namespaces", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_login_links")),
    )
    op.create_table(
        "users",
        *_columns(sa.Text(), "subject", "role", "source"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_login_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_users")),
    )
    op.create_table(
        "web_sessions",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        *_columns(sa.Text(), "subject", "role", "source"),
        *_columns(sa.DateTime(timezone=True), "created_at", "last_used_at", "expires_at"),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("namespaces", postgresql.JSONB(), server_default="{}", nullable=False),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("groups", postgresql.JSONB(), server_default="[]", nullable=False),
        sa.Column("opened_by", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_web_sessions")),
    )
    op.create_table(
        "gateway_key_use",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("minute", sa.DateTime(timezone=True), nullable=False),
        *_columns(sa.Text(), "router", "refusal"),
        *_columns(sa.BigInteger(), "requests", "prompt_tokens", "output_tokens", server_default="0"),
        sa.ForeignKeyConstraint(["key_id"], ["gateway_keys.id"], name=op.f("fk_gateway_key_use_key_id")),
        sa.PrimaryKeyConstraint("key_id", "minute", "router", "refusal", name=op.f("pk_gateway_key_use")),
    )
    op.create_index(op.f("ix_gateway_key_use_minute"), "gateway_key_use", ["minute"])


def _audit() -> None:
    op.create_table(
        "audit_heads",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_audit_heads")),
        sa.UniqueConstraint("last_id", name=op.f("uq_audit_heads_last_id")),
    )
    op.create_table(
        "audit_log",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        *_columns(sa.Text(), "actor", "role", "source", "action", "object"),
        sa.Column("reason", sa.Text(), nullable=True),
        *_columns(postgresql.JSONB(), "before", "after", nullable=True),
        sa.Column("result", sa.Text(), nullable=False),
        *_columns(sa.Text(), "request_id", "plan", nullable=True),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_log")),
    )
    op.create_index(op.f("ix_audit_log_action_at"), "audit_log", ["action", "at"])
    op.create_index(op.f("ix_audit_log_actor_at"), "audit_log", ["actor", "at"])
    op.create_index(op.f("ix_audit_log_at_id"), "audit_log", ["at", "id"])
    op.create_index(
        "ix_audit_log_human",
        "audit_log",
        ["at", "id"],
        postgresql_where=sa.text(_OF_PEOPLE),
    )
    op.create_index(op.f("ix_audit_log_object_at"), "audit_log", ["object", "at"])
    op.create_table(
        "cluster_changes",
        sa.Column("audit_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("acted_as", sa.Text(), nullable=True),
        sa.Column("groups", postgresql.JSONB(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("audit_id", name=op.f("pk_cluster_changes")),
    )
    op.create_index(op.f("ix_cluster_changes_at"), "cluster_changes", ["at"])
    op.create_index(op.f("ix_cluster_changes_uid_version"), "cluster_changes", ["uid", "version"])
