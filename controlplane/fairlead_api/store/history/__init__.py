"""The record as the public API shows it: lists, one module per noun; load and objectives over time; search.

It must not read an unbounded number of rows for one page. The danger here: a query without an index, which shows
only once a table is full.
"""
