"""Advice: passes the pools' situations to `fairlead.advice`, and returns the findings of `fairlead.advice` as
resources.

This package must not find anything itself. The danger here: a situation that combines figures from different times.
"""
