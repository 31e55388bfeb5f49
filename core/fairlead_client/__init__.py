"""Typed clients of the control API.

`client` is for the public API, which people and the web UI use; `internal` is for the operator and routers. `resources`
holds the public API's wire types, and `lines` the wire types of the routers' stream; the API serves and encodes the
same classes. The package knows only HTTP and the core and imports no component. It never sends anything twice, because
the caller decides whether to try again.
"""
