"""One module per page, whole: its paths (`ROUTES`), what its templates get (a `Context` each), and handlers that fetch, arrange and render.

Handlers hold no state and decide nothing about rights; they must not build HTML. Their danger is asking the API for too much: every list
here is one page of at most a hundred rows.
"""
