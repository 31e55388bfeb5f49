"""The reports by which routers tell the control API what they did.

One batch covers everything since the last one and is idempotent by its id: it is stored at most once however often it
is sent, so a router may resend it until it is acknowledged. These dataclasses are the wire format (JSON). All times
are Unix seconds as floats; all durations are in seconds; all amounts are in tokens.

Its danger: a field or a word that an older API or router cannot read.
"""
