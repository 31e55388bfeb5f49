"""Admission: which requests are refused, with which status, reason and Retry-After.

A gate refuses a request at its arrival when it cannot be served within its SLO (`gates`, by the loads of `loads` and
the forecast of `forecasts`); `refusals` gives each refusal, also those of queues and failures, its status, reason and
sentence. Nothing here chooses an instance or changes accounting. Its danger: a rule that refuses too much looks, from
outside, exactly like an outage.
"""
