"""Traces of requests in Mooncake's format: read, written, described, converted; when each row arrives and which session
it belongs to.

Bottom floor of the simulator: it knows nothing of engines, policies or HTTP. Its danger: a row read wrongly is believed
by everything above.
"""
