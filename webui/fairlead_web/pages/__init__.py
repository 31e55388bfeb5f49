"""One module per page: fetch from the control API, arrange into that page's context, render.

Handlers hold no state and decide nothing about rights; they must not build HTML. Their danger is asking the API for too much: every list
here is one page of at most a hundred rows.
"""
