"""Sampled decisions: why a request went to its instance, and sessions for which every decision is kept for a while.

It must not read an unbounded number of rows for one page. The danger here: a filter that silently hides rows.
"""
