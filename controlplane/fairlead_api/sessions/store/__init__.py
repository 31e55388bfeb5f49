"""Sessions in Postgres. A session's move is stored as binding, history and migration together, or not at all."""
