"""Routers' reports in Postgres: each is claimed once, then stored row by row.

It must not store any row of a report before the report's id is claimed. The danger here: a report stored twice.
"""
