"""Traces of requests in Mooncake's format: read, written, described and converted, with the arrival time and the
session of each row.

This is the lowest layer of the simulator: it knows nothing of engines, policies or HTTP. Its danger: a row that is read
wrongly is believed by all layers above.
"""
