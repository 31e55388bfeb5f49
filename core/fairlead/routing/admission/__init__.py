"""Admission: decides which requests are refused, and gives each refusal its status, reason and Retry-After.

A gate refuses a request at its arrival if the request cannot be served within its SLO (`gates`, which uses the loads of
`loads` and the forecast of `forecasts`). `refusals` gives the status, reason and sentence of each refusal, including
refusals by queues and after failures. Nothing here chooses an instance or changes accounting. Its danger: a rule that
refuses too much looks, from outside, exactly like an outage.
"""
