"""Reports of routers' work to the control API.

Each batch covers the time since the previous batch and has an id. It is stored at most once however often it is sent,
so a router may resend it until it is acknowledged. These dataclasses are the wire format (JSON). All times are Unix
seconds as floats; all durations are in seconds; all amounts are in tokens. A change must not add a field or a value
that an older API or router cannot read.
"""
