"""Session trees, the figures of tasks, and how long sessions wait between turns.

Rows of recorded requests are the turns. This subject stores the parent of each session, and sums. The danger here: a
sum that depends on the order in which reports arrive.
"""
