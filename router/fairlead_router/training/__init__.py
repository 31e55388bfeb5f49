"""Training of learning policies, in a process of its own, because rounds take seconds of a core, and requests cannot
wait.

The trainer decides nothing and keeps nothing that would be missed: without it the model in use stays. Its danger is
that it is a second process on the router's cores, so it runs at low priority and on one thread.
"""
