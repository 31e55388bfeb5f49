"""Trains learning policies in a separate process, because one training takes seconds of a core, and requests cannot
wait for it.

The trainer decides nothing, and has no state that cannot be replaced: without it, the current model stays. Its danger
is that it is a second process on the router's cores. So it runs at low priority and on one thread.
"""
