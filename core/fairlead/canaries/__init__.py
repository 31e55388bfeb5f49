"""Canaries: a new revision gets a share of the sessions, and a judge compares these sessions with all other sessions.

`bets` accumulates evidence that may be evaluated at any time, `sessions` turns requests into one value per session, and
`judging` compares the two groups of sessions in a step and gives the verdict. Pure; the input is
`fairlead.reports.canaries`.
"""
