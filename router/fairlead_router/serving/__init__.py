"""Connections of clients, the requests on these connections, and the requests' bodies, all with limits.

This package must not know pools or engines, and must not read more than its memory allows (`body_memory`). Its danger
is that `client_connections` uses private attributes of uvicorn: a release of uvicorn can break it, so the version is
bounded and a test checks each of these attributes.
"""
