"""Traces of requests in Mooncake's format. They are read, written, described and converted, and their rows get arrival
times and sessions.

This is the lowest layer of the simulator, which knows nothing of engines, policies or HTTP. Its danger: if a row is
read wrongly, all layers above rely on the error.
"""
