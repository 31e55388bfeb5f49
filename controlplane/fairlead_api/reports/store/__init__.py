"""Reports in Postgres: each report is claimed once, then stored row by row."""
