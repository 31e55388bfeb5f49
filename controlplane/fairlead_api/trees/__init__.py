"""Session trees, the figures of tasks, and how long sessions wait between turns.

The turns of a session are its recorded requests. This package stores the parent of each session, and sums over turns.
The danger here: a sum that depends on the order in which reports arrive.
"""
