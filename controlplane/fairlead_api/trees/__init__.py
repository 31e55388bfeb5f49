"""Session trees, the figures of tasks, and how long sessions wait between turns.

Rows of recorded requests are the turns; this subject keeps which session came from which, and the sums. The danger
here: a sum that depends on the order in which reports arrive.
"""
