"""Scaling decisions as people read them, and the signals that the operator scales by.

It must not decide a number of instances; the operator does. The danger here: a signal of a router that is gone.
"""
