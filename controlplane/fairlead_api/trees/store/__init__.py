"""Session trees in Postgres: written with each report, read as trees, tasks and think times."""
