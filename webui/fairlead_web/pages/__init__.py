"""One module per page, whole: its paths (`ROUTES`, which `app` finds), what its templates get (a `Context`
each), and its handlers.

Handlers fetch from the control API, arrange and render. They hold no state and decide nothing about rights; they must
not build HTML. Their danger is asking the API for too much: every list here is one page of at most a hundred rows.
"""
