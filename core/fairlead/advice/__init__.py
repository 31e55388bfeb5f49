"""Advice: what hurts a pool's users, why, and the change that would help, ranked by harm.

`situations` holds the known facts about a pool; each finding is a module of its own that turns a situation into
findings; `advising` asks them all and ranks what they found. Pure: ages and windows come from the caller.
"""
