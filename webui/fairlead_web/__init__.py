"""The web UI: server-rendered pages over the public control API.

It is for people who run inference pools: it shows which instances are hot, which sessions moved, and which requests
were refused and why; and it changes pools safely (plan, apply, undo). It calls only the control API over HTTP, with the
visitor's own session token. It must not import the API's packages, read the database or decide rights (the API decides;
pages only show what it decided). The danger is the browser. Therefore every page needs a session by default, has a
strict content security policy, and treats every name from the API as hostile text.
"""
