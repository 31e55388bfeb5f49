"""Stores reports in Postgres: each report's id is claimed once, and then the report's rows are stored."""
