"""Routers' reports in Postgres: each claimed once, then stored row by row.

It must not store anything of a report before its id is claimed. Its danger: a report stored twice.
"""
