"""Session migrations and re-routes: lists, flows between instances, and their rollups.

It must not judge whether a move was faster than staying; the core does. The danger here: counting a move twice.
"""
