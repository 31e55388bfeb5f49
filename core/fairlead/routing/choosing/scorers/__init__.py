"""Scorers: each scorer gives every considered instance a score from 0 (worst) to 1 (best) for one aspect.

The functions are pure and work on vectors. The classes implement llm-d's plugins of the given names, with the same
parameters. A scorer never filters and never picks. The danger of this package: a score may mean something else in a
cold pool than in a warm pool (see `prefixes`).
"""
