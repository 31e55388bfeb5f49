"""Knowledge: what one pool's scheduler remembers and estimates.

It knows which instance holds which prefix, where sessions live, how long prefills and decode steps take, which
instances fail, and where keys lie on the ring; `views` shows all of it to a policy. Nothing here chooses an instance.
Its danger: all of it grows with traffic, so everything that is remembered needs a bound.
"""
