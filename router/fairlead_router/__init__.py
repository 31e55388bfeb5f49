"""The router: an OpenAI-compatible gateway that decides which engine serves a request, proxies it,
and reports what happened.

It must not need the control API, Postgres or Kubernetes to serve a request it can already serve, and must not decide by
itself: decisions belong to `fairlead.routing`. Its danger is accounting: every submitted request has to end in its
scheduler exactly once, on every exit path, or an instance looks busy for ever and gets no more work.
"""
