"""Knowledge: what one pool's scheduler remembers and estimates.

It records which instance holds which prefix, where sessions have their homes, how long prefills and decode steps take,
which instances fail, and which instance the hash ring gives for a key; `views` presents all of it to a policy. Nothing
here chooses an instance. Its danger: all of it grows with traffic, so everything that is remembered needs a bound.
"""
