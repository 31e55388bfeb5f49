"""Reports in Postgres: each is claimed once, then stored row by row."""
