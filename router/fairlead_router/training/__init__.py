"""Training of learning policies in a separate process, because one training takes seconds of a core, and requests
cannot wait.

The trainer decides nothing and holds no irreplaceable state: without it the current model stays. Its danger is that it
is a second process on the router's cores, so it runs at low priority and on one thread.
"""
