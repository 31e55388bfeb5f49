"""Sessions in Postgres: a session's move is stored as binding, history and migration together, or not at all."""
