"""One module per page: its paths (`ROUTES`, which `app` collects), a `Context` per template, and its handlers.

Handlers fetch from the control API, arrange and render. They hold no state and decide nothing about rights; they must
not build HTML. Their danger is asking the API for too much, so every list is one page of at most a hundred rows.
"""
