"""The router: an OpenAI-compatible gateway that decides which engine serves a request, proxies it, and reports what
happened.

It must not need the control API, Postgres or Kubernetes to serve a request it can already serve, and must not make
routing decisions itself: they belong to `fairlead.routing`. Its danger is accounting: every submitted request must end
in its scheduler exactly once, on every exit path. Otherwise an instance looks busy permanently and gets no more work.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""numpy reads the variable when it is loaded. Matrix products of the sizes used here are slower with several threads,
and their p99 reaches milliseconds.
"""
