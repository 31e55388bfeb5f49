"""The record as the public API shows it: sessions, moves, decisions, rejections, audit, load.

It must not read an unbounded number of rows for one page. Its danger: a query without an index, which
a full table shows first.
"""
