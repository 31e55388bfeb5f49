"""Canaries: a new revision gets some sessions, and a judge compares them with the others.

`bets` gathers evidence that may be read at any time, `sessions` turns requests into one value a session, `judging`
compares the two arms of a step and gives the verdict. Pure; what is judged are `fairlead.reports.canaries`.
"""
