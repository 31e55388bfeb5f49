"""One module for each kind of plan, with the kind's name: how it turns a request into a change, and the change's
effect.

A kind must not change a pool in any way that its plan does not show. The danger here: an effect that is estimated for
another object than the one that is written.
"""
