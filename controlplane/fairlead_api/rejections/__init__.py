"""Refused requests by cause, and the remedy for each cause.

It must not count a request under two causes. The danger here: counts from samples next to counts from rollups.
"""
