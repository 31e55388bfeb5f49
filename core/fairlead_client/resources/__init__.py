"""The public API's resources, one module per noun.

The responses of `/v1` are these dataclasses; the web UI, the command line and scripts decode into them. Both sides
share one definition. The records that routers report (`fairlead.reports`) are extended here, never retyped. Times are
RFC 3339 in UTC (datetime), durations are in seconds, amounts in tokens, shares 0-1. `pool` is always `namespace/name`.
The package holds data only: it must not call anything or decide anything.
"""
