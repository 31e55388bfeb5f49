"""Paths of the internal protocol. The API serves them and `SystemApi` calls them; `{namespace}` and `{name}` are the
pool's.
"""

POOL = "/internal/v1/pools/{namespace}/{name}"
POOL_STATE = f"{POOL}/state"
POOL_EVENTS = f"{POOL}/events"
HELD_POOLS = "/internal/v1/held-pools"
UNHEARD_POOLS = "/internal/v1/unheard-pools"
STREAM = "/internal/v1/stream"
REPORTS = "/internal/v1/reports"
PREDICTOR_MODELS = "/internal/v1/predictor-models"
ROUTER_GONE = "/internal/v1/routers/gone"
