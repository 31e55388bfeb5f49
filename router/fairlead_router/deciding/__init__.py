"""Routers that let one of them decide (docs/decisions/0022-one-router-decides.md).

company ──► callers (what others ask of this router) ──────────────► connections ──► frames
        ├─► meeting ──► decider (what this router asks of another) ─┘  both prove who they are by proofs
        └─► listed (who is on this machine, or whom the control API knows of)

It must not decide: the scheduler of the router that is asked does. Its danger is a request with two deciders, or with
none. A router that loses its decider decides alone again, and each of the two keeps reporting the requests until the
other does.
"""
