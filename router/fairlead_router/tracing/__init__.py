"""Traces for OpenTelemetry: reads and passes on the caller's trace context, and makes spans of requests whose routing
decisions are kept.

Spans are made from the stored record after the request has ended, and are sent by a separate thread. This package must
not delay a request, and it does nothing if no collector's address is set. Its danger is a collector that is slow or
cannot be reached: spans that it does not accept in time are dropped and counted.
"""
