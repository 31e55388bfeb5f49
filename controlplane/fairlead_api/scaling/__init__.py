"""Scaling decisions as people read them, and the signals with which the operator scales pools.

This package must not decide a number of instances, which is the operator's task. The danger here: a signal from a
router that is gone.
"""
