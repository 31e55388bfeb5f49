"""Advice: the problems of a pool's users, the causes of these problems, and the changes that would help. The problems
are ranked by harm.

`situations` holds the known facts about a pool. Each kind of finding is a module of its own that turns a situation into
findings; `advising` calls all these modules and ranks their findings. Pure: ages and windows come from the caller.
"""
