"""One module per page: its paths (`ROUTES`, which `app` collects), a `Context` per template, and its handlers.

Handlers fetch data from the control API, arrange and render them. They hold no state and decide nothing about rights;
they must not build HTML. The danger here is a request for too much data. Therefore every list shows one page of at most
a hundred rows.
"""
