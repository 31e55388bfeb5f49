"""Typed client of the control API, used by the web UI, the operator, the router and the command line.

`resources` holds the public API's wire types (the API serves the same classes). The package knows HTTP and the core only; it never imports
a component, never retries a write on its own, and turns every problem document into one exception with a one-line message.
"""
