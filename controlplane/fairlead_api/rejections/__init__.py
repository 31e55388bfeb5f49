"""Refused requests by cause, and what can be done about each cause.

It must not count a request under two causes. The danger here: counts from samples beside counts from rollups.
"""
