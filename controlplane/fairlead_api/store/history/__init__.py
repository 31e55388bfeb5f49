"""The record as the public API shows it: sessions, moves, decisions, rejections, audit, load.

It must not read an unbounded number of rows for one page. The danger here: a query without an index, which shows
only once a table is full.
"""
