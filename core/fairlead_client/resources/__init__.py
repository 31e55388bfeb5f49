"""The public API's resources, a module per noun: what `/v1` answers, and what the web UI, the command
line and scripts decode.

One definition for both sides: the API serves these dataclasses, the client decodes them. What routers report
(`fairlead.reports`) is extended here, never retyped. Times are RFC 3339 in UTC (datetime), durations seconds,
amounts tokens, shares 0-1. `pool` is always `namespace/name`. The package holds data only: it must not call
anything or decide anything.
"""
