"""What people write about a pool: on a range of time, which charts mark, or on a plan.

The danger here: the text is a stranger's to everybody else, so it is plain text, bounded, and nothing else than shown.
"""
