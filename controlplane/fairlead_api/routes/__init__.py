"""HTTP of the control API: one module per resource, each translating requests to services and answers to resources.

A route never sees the store, and its only rule is which role may call it.
"""
