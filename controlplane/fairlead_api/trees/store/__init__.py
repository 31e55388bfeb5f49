"""Stores session trees in Postgres with each report, and reads them as trees, tasks and think times."""
