"""Columns that this version neither reads nor writes, while the one before still does.

Such a column is in the database and in no table here, so that no statement names it. It must be nullable or have a
default, as new rows say nothing of it. A migration of a later release drops it, marked `contract`; then its line goes.
"""

RETIRED: "frozenset[tuple[str, str]]" = frozenset()
"""Table and column."""
