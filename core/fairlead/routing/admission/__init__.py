"""Admission: decides which requests are refused, and gives each refusal its status, reason and Retry-After.

A gate refuses a request at its arrival if the request cannot be served within its SLO (`gates`). Gates use the loads of
`loads` and the forecast of `forecasts`. `refusals` gives the status, reason and sentence of each refusal, including
refusals by queues and after failures. This package neither chooses an instance nor changes a counter. The danger of
this package: to a client, a rule that refuses too much looks exactly like an outage.
"""
