"""KV events of engines: what their bytes mean."""
