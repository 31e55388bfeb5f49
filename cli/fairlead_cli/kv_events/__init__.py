"""`fairlead kv-events`: checks recordings of engines' KV events."""
