"""Sampled decisions: why a request went where it went, and sessions all of whose decisions are kept for a while.

It must not read an unbounded number of rows for one page. The danger here: a filter that silently hides rows.
"""
