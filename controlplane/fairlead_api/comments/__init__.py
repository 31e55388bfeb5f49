"""Comments of people about a pool: on a range of time, which charts mark, or on a plan.

The danger here: each reader sees text from strangers. Therefore the text is plain, bounded, and only displayed.
"""
