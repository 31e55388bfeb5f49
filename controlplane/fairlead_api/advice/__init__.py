"""Advice: passes the pools' situations to `fairlead.advice`, and returns its findings as resources.

It must not find anything itself. The danger here: a situation that combines figures from different times.
"""
