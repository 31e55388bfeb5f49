"""Advice: the problems of a pool's users, their causes, and the changes that would help, ranked by harm.

`situations` holds the known facts about a pool. Each kind of finding is a module of its own that turns a situation into
findings; `advising` calls all these modules and ranks their findings. Pure: ages and windows come from the caller.
"""
