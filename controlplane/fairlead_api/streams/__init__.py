"""Server push: routing tables for routers, live topics for pages.

It must not let one slow reader delay the others. The danger here: a subscriber that misses a change unnoticed.
"""
