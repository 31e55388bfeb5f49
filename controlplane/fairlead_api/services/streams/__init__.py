"""What leaves the API without being asked again: routing tables for routers, notices between API
processes, live topics for pages.

It must not let one slow reader hold up the others. Its danger: a subscriber that misses a change and does not know it.
"""
