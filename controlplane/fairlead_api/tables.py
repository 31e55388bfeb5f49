"""Every table of the database, as SQLAlchemy Core metadata. Migrations are generated from these tables and checked
against them.

`pools` keeps one row per namespace and name, even after a deletion, so that versions of routing tables never decrease.
Times are UTC. The large tables (`PARTITIONED`) are partitioned by UTC day; `infra.partitions` makes and drops the
partitions. Each subject defines its tables; this module must not contain any SQL statement. The danger here: a column
changed without a migration. A test compares the tables with the migrations.
"""

from fairlead.reports.batches import ROW_KINDS
from fairlead_api.access.tables import api_tokens as api_tokens
from fairlead_api.access.tables import gateway_key_use as gateway_key_use
from fairlead_api.access.tables import gateway_keys as gateway_keys
from fairlead_api.access.tables import login_links as login_links
from fairlead_api.access.tables import users as users
from fairlead_api.access.tables import web_sessions as web_sessions
from fairlead_api.audit.tables import audit_heads as audit_heads
from fairlead_api.audit.tables import audit_log as audit_log
from fairlead_api.audit.tables import audit_views as audit_views
from fairlead_api.audit.tables import cluster_changes as cluster_changes
from fairlead_api.canaries.tables import canary_looks as canary_looks
from fairlead_api.canaries.tables import canary_samples as canary_samples
from fairlead_api.canaries.tables import canary_steps as canary_steps
from fairlead_api.comments.tables import comments as comments
from fairlead_api.costs.tables import instance_lives as instance_lives
from fairlead_api.costs.tables import instance_prices as instance_prices
from fairlead_api.costs.tables import measured_prices as measured_prices
from fairlead_api.costs.tables import session_usage_hours as session_usage_hours
from fairlead_api.costs.tables import usage_hours as usage_hours
from fairlead_api.costs.tables import work_hours as work_hours
from fairlead_api.decisions.tables import decisions as decisions
from fairlead_api.decisions.tables import kept_sessions as kept_sessions
from fairlead_api.infra.columns import metadata as metadata
from fairlead_api.loads.tables import POOL_GAUGES as POOL_GAUGES
from fairlead_api.loads.tables import SUMS as SUMS
from fairlead_api.loads.tables import arrivals as arrivals
from fairlead_api.loads.tables import heatmap_columns as heatmap_columns
from fairlead_api.loads.tables import load_rollups_1m as load_rollups_1m
from fairlead_api.loads.tables import load_rollups_10s as load_rollups_10s
from fairlead_api.loads.tables import load_samples as load_samples
from fairlead_api.loads.tables import pool_rollups_1h as pool_rollups_1h
from fairlead_api.loads.tables import pool_rollups_1m as pool_rollups_1m
from fairlead_api.loads.tables import pool_rollups_10s as pool_rollups_10s
from fairlead_api.loads.tables import rollup_queue as rollup_queue
from fairlead_api.moves.tables import migrations as migrations
from fairlead_api.moves.tables import move_rollup_queue as move_rollup_queue
from fairlead_api.moves.tables import move_rollups_1h as move_rollups_1h
from fairlead_api.moves.tables import move_rollups_1m as move_rollups_1m
from fairlead_api.moves.tables import reroutes as reroutes
from fairlead_api.plans.tables import plans as plans
from fairlead_api.pools.tables import instance_transitions as instance_transitions
from fairlead_api.pools.tables import instances as instances
from fairlead_api.pools.tables import pool_events as pool_events
from fairlead_api.pools.tables import pool_revisions as pool_revisions
from fairlead_api.pools.tables import pools as pools
from fairlead_api.pools.tables import predictor_models as predictor_models
from fairlead_api.pools.tables import router_acknowledgements as router_acknowledgements
from fairlead_api.pools.tables import routers as routers
from fairlead_api.pools.tables import routing_tables as routing_tables
from fairlead_api.rejections.tables import rejections as rejections
from fairlead_api.reports.tables import reports as reports
from fairlead_api.scaling.tables import scaling_decisions as scaling_decisions
from fairlead_api.scaling.tables import wanted_replicas as wanted_replicas
from fairlead_api.schedules.tables import schedule_runs as schedule_runs
from fairlead_api.sessions.tables import bindings as bindings
from fairlead_api.sessions.tables import lost_moves as lost_moves
from fairlead_api.sessions.tables import session_names as session_names
from fairlead_api.sessions.tables import sessions as sessions
from fairlead_api.simulations.tables import engine_fits as engine_fits
from fairlead_api.simulations.tables import recorded_requests as recorded_requests
from fairlead_api.simulations.tables import simulations as simulations
from fairlead_api.slo.tables import SLO_SUMS as SLO_SUMS
from fairlead_api.slo.tables import slo_configs as slo_configs
from fairlead_api.slo.tables import slo_rollups_1h as slo_rollups_1h
from fairlead_api.slo.tables import slo_rollups_1m as slo_rollups_1m
from fairlead_api.slo.tables import slo_samples as slo_samples
from fairlead_api.trees.tables import TASK_SUMS as TASK_SUMS
from fairlead_api.trees.tables import finished_tasks as finished_tasks
from fairlead_api.trees.tables import session_trees as session_trees
from fairlead_api.trees.tables import task_rollups_1h as task_rollups_1h
from fairlead_api.trees.tables import task_turns as task_turns
from fairlead_api.webhooks.tables import notices as notices
from fairlead_api.webhooks.tables import webhooks as webhooks

PARTITIONED = {kind.table: kind.time.value for kind in ROW_KINDS.values() if kind.table}
"""Tables that are partitioned by UTC day, each with the column that determines the day."""

RETIRED: "frozenset[tuple[str, str]]" = frozenset()
"""Columns (table and column) that this version neither reads nor writes, while the previous version still does.

Such a column exists in the database but not in the tables of this package, so that no statement names it. It must be
nullable or have a default, because new rows do not set it. A migration of a later release, marked `contract`, drops the
column; its entry is then removed from this set.
"""
