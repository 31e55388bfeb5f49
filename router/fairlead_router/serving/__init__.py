"""Connections of clients, the requests on these connections, and the bodies of requests, all with limits.

This package must not know pools or engines, and must not read more than its memory allows (`body_memory`). Its danger
is a new release of uvicorn, because `client_connections` uses private attributes of uvicorn. So uvicorn's version is
bounded, and a test checks each of these attributes.
"""
