"""Traces for OpenTelemetry: reads and passes on the caller's trace context, and makes spans of requests whose decisions
are kept.

Spans are made from the stored record when the request has ended, and sent by a separate thread. Nothing in this package
may hold up a request, and without an endpoint none of it runs. Its danger is a collector that is slow or away: spans
that the collector does not accept in time are dropped and counted.
"""
