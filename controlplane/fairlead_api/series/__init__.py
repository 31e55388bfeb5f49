"""Time series, and the events to mark in their charts, for all pools, a pool or an instance.

This package must not interpolate: a step without a record is empty. The danger here: a range or filter that silently
hides rows.
"""
