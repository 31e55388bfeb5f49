"""Admission: which requests are refused, with which status, reason and Retry-After.

They refuse early what cannot be served within its SLO (`gates`, by the loads of `loads` and the forecast of `forecasts`) and late what waited too
long; they never choose an instance and never change accounting. Its danger: a rule that refuses too much looks, from outside, exactly like an outage.
"""
