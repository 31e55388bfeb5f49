"""Kubernetes objects as JSON: reading and changing their parts, names, selectors, and the errors
the server answers with.

It must not know any kind. Its danger: an object changed in place while somebody else holds it.
"""
