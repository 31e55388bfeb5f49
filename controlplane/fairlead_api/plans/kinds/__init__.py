"""One module for each kind of plan, named as the kind is: how it finds the change that is asked for, and its effect.

A kind must not change a pool in any way that its plan does not show. The danger here: a change whose effect is
estimated of another object than the one that is written.
"""
