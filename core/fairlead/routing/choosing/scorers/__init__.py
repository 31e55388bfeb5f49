"""Scorers: one aspect of every candidate as a number from 0 to 1, higher is better. Pure functions over vectors,
to be weighted and summed.

A scorer never filters and never picks. Its danger: a scale that means one thing in a cold pool and another in a
warm one (see `prefixes`).
"""
