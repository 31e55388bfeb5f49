"""Routers that let one of them decide (docs/decisions/0022-one-router-decides.md).

company ──► callers (what others ask of this router) ──────────────► connections ──► frames
        ├─► meeting ──► decider (what this router asks of another) ─┘  both prove who they are by proofs
        └─► listed (who is on this machine, or whom the control API knows of)

This package must not decide: the scheduler of the asked router does. Its danger is a request for which two routers
decide, or no router. A router that loses its decider decides alone again, and each of the two keeps reporting the
requests until the other does.
"""
