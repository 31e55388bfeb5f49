"""Sockets to clients: connections, requests on them, and their bodies with all limits.

It must not know pools or engines, and must not read more than its memory allows (`body_memory`). `client_connections`
uses private attributes of uvicorn, which is its danger: a release of uvicorn can break it, so the version is bounded
and a test looks for each of them.
"""
