"""One module for each kind of plan, with the kind's name. Each module turns a request into a change, and estimates the
change's effect.

A kind must not change a pool in any way that its plan does not show. The danger here: the effect is estimated for one
object, but another object is written.
"""
