"""Numbers over time, and what happened at those times, of all pools, of a pool and of an instance.

It must not interpolate: a step without a record is empty. The danger here: a range or filter that silently hides rows.
"""
