"""The router: an OpenAI-compatible gateway that decides which engine serves a request, proxies the request, and reports
the result.

Once the router has the routing table of a pool, it must serve the pool even without the control API, Postgres and
Kubernetes. This package must not make routing decisions: they belong to `fairlead.routing`. Its danger is accounting:
every submitted request must end in its scheduler exactly once, on every exit path. Otherwise an instance looks busy
permanently and gets no more work.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Limit numpy to one thread; numpy reads this variable when it is loaded. Matrix products of the sizes used in the
router are slower with several threads, and their p99 reaches milliseconds.
"""
