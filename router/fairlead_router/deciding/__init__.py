"""Lets one of several routers make the routing decisions for a pool (docs/decisions/0022-one-router-decides.md).

company ──► callers (routers for which this router decides) ───────► connections ──► frames
        ├─► meeting ──► decider (a router that decides for this one) ─┘  `proofs`: both routers prove their identity
        └─► listed (addresses of routers, on this machine or from the control API)

This package must not make routing decisions: the scheduler of the deciding router does. Its danger is a request for
which two routers decide, or no router. A router that loses its decider decides for its own requests again. When the
decider changes, the router that decided before keeps reporting the requests in flight until the other router reports
them.
"""
