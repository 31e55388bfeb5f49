"""Session migrations and re-routes: lists, flows between instances, and their rollups.

Whether a finished move was faster than staying is a generated column of `tables`, from the TTFT predicted for staying
and the real one, both as routers report them; whether to move at all was weighed before, in
`fairlead.routing.scheduling.leaving`. It must not predict anything itself. The danger here: counting a move twice.
"""
