"""Session migrations and re-routes: lists, flows between instances, and their rollups.

Whether a finished move was faster than staying is a generated column in `tables`, computed from the predicted TTFT for
staying and the actual TTFT, both reported by routers. The decision to move a session is made elsewhere, in
`fairlead.routing.scheduling.leaving`. This package must not predict anything. The danger here: counting a move twice.
"""
