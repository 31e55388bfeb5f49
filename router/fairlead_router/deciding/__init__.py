"""Routers that let one of them decide (docs/decisions/0022-one-router-decides.md).

company ──► callers (what others ask of this router) ──────────────► connections ──► frames
        ├─► meeting ──► decider (what this router asks of another) ─┘  both prove who they are by proofs
        └─► listed: folder (who is on this machine), told_routers (whom the control API knows of)
"""
