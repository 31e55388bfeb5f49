"""Which routers are live, by the database's clock."""

from sqlalchemy import and_, func, select, text

from fairlead_api.services.pools.mirroring import LIVE_SECONDS
from fairlead_api.store import tables

_ROUTERS = tables.routers.c

IS_LIVE = and_(_ROUTERS.gone_at.is_(None), _ROUTERS.last_seen_at > func.now() - text(f"interval '{LIVE_SECONDS} seconds'"))
"""Reported in the last LIVE_SECONDS, and did not say goodbye since."""

COUNT_LIVE = select(func.count()).select_from(tables.routers).where(IS_LIVE)
