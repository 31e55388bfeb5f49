"""Traces for OpenTelemetry: the caller's trace context taken and passed on, and spans of requests whose decisions are
kept.

Spans are made of the stored record when its request has ended, and sent by a thread of their own; nothing here may hold
up a request, and without an endpoint nothing of it runs. Its danger is a collector that is slow or away: what it does
not take in time is dropped and counted.
"""
