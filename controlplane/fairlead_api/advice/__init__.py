"""Advice: reads each pool's situation (the facts about the pool at one time), passes it to `fairlead.advice`, and
returns the findings as resources.

This package must not add findings. The danger here: a situation that combines figures from different times.
"""
