"""Routers of one machine that let one of them decide (docs/decisions/0022-one-router-decides.md).

company ──► callers (what others ask of this router) ──► connections ──► frames
        └─► asking (what this router asks of another)──┘
        └─► folder (who is there)
"""
