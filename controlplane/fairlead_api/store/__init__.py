"""Postgres: all SQLAlchemy of the control API, one module per group of tables.

It implements the services' Protocols. The danger here is the edge of a transaction: a session's move is stored as
binding, history and migration together, or not at all.
"""
