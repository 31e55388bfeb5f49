"""Admission: which requests are refused, with which status, reason and Retry-After.

Pure functions over what routing already knows. They refuse early what cannot be served within its SLO and late what waited too long; they never
choose an instance and never change accounting. Its danger: a rule that refuses too much looks, from outside, exactly like an outage.
"""
