"""Routing decisions of a sample of all requests: why a request was sent to its instance. Also sessions for which every
decision is kept for a while.

This package must not read an unbounded number of rows for one page. The danger here: a filter that silently hides rows.
"""
