"""SQL for live routers, by the database's clock, and for the routing tables that they have acknowledged."""

from sqlalchemy import BigInteger, Text, and_, bindparam, cast, func, select, text

from fairlead_api import tables
from fairlead_api.infra.database import ROUTER_LIVE_FOR

_ROUTERS = tables.routers.c

IS_LIVE = and_(_ROUTERS.gone_at.is_(None), _ROUTERS.last_seen_at > func.now() - text(ROUTER_LIVE_FOR))
"""SQL condition that a router reported within the last `FAIRLEAD_ROUTER_LIVE_SECONDS` and has not signed off since its
last report.
"""

COUNT_LIVE = select(func.count()).select_from(tables.routers).where(IS_LIVE)

CAN_BE_ASKED = select(_ROUTERS.id, _ROUTERS.asked_at).where(IS_LIVE, _ROUTERS.asked_at.is_not(None)).order_by(_ROUTERS.id)
"""SQL for the addresses of live routers to which other routers can send queries."""

SHARES_OF_LIVE = select(_ROUTERS.id, func.extract("epoch", func.now() - _ROUTERS.last_seen_at), _ROUTERS.shares).where(
    IS_LIVE, _ROUTERS.shares != text("'{}'::jsonb")
)
"""SQL for the load reports of live routers, by pool, each with its age in seconds."""

NEWEST_ACKNOWLEDGED = select(
    func.max(cast(_ROUTERS.acknowledged.op("->>", return_type=Text())(bindparam("pool", type_=Text)), BigInteger))
).where(IS_LIVE)
"""SQL for the newest version of a pool's routing table that a live router uses; `pool` is the pool's id as text."""
