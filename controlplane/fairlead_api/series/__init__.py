"""Time series and the events at those times, for all pools, a pool or an instance.

It must not interpolate: a step without a record is empty. The danger here: a range or filter that silently hides rows.
"""
