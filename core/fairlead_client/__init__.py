"""Typed clients of the control API: `client` for its public half, with which people and the web UI speak, `internal`
for the operator and routers.

`resources` holds the public API's wire types and `lines` those of the routers' stream; the API serves and encodes the
same classes. The package knows HTTP and the core only. It never imports a component and never sends anything twice:
whether to try again is the caller's decision.
"""
