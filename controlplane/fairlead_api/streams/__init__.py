"""Server push: a stream of routing tables for routers, and a stream of live topics for pages.

This package must not let one slow reader delay other readers. The danger here: a subscriber that misses a change
without noticing.
"""
