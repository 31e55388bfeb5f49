"""`fairlead kv-events`: looks at recordings of engines' KV events."""
