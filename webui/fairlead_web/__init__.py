"""The web UI: server-rendered pages over the public control API.

For people who run inference pools: what is hot, what moved, who was refused and why, and a safe way to change it (plan,
apply, undo). It talks HTTP to the control API with the visitor's own session token and nothing else: it must not import
the API's packages, read the database or decide rights by itself (the API decides, pages only mirror). Its danger is the
browser: every page is closed by default, carries a strict content security policy, and treats every name that comes
back from the API as hostile text.
"""
