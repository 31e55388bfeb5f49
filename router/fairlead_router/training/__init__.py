"""Training of learning policies, in a process of its own: rounds take seconds of a core, and requests cannot wait.

The trainer decides nothing and keeps nothing that is missed: without it the model in use stays. Its danger: it is a
second process on the router's cores, so it runs at low priority and on one thread.
"""
