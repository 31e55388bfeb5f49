"""Session migrations and re-routes: lists, flows between instances, and their rollups.

It must not judge whether a move paid off; the core does. The danger here: a move that is counted twice.
"""
