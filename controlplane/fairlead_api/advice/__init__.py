"""Advice: what is known of the pools goes to `fairlead.advice`, and its findings out as resources.

It must not find anything itself. The danger here: a situation made of figures from different times.
"""
