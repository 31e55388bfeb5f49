"""Postgres: the only SQLAlchemy of the control API, one module per group of tables.

It implements the services' Protocols. Its danger is the transaction's edge: a move of a session is binding, history
and migration, or nothing.
"""
