"""Traces for OpenTelemetry: reads the caller's trace context and passes it on, and makes spans of requests whose
routing decisions are kept.

Spans are made from the stored record after the request has ended, and a separate thread sends them. This package must
not delay a request, and it does nothing if no address of a collector is set. Its danger is a collector that is slow or
cannot be reached. Spans that the collector does not accept in time are dropped and counted.
"""
