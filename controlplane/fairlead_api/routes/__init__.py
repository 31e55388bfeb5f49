"""HTTP of the control API: one module per resource, each translating requests to services and answers to resources.

A route never sees the store and holds no rule of its own but who may call it.
"""
