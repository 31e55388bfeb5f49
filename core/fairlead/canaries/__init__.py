"""Canaries: a new revision gets some of the sessions, and a judge compares them with the other sessions.

`bets` gathers evidence that may be read at any time, `sessions` turns requests into one value per session, and
`judging` compares the two arms of a step and gives the verdict. Pure; the input is `fairlead.reports.canaries`.
"""
