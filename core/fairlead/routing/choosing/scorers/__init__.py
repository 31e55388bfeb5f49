"""Scorers: each rates one aspect of every considered instance with a number from 0 to 1; higher is better.

The functions are pure and work on vectors; the classes are llm-d's plugins of these names, with its parameters. A
scorer never filters and never picks. Its danger: a score that does not mean the same in a cold pool as in a warm one
(see `prefixes`).
"""
