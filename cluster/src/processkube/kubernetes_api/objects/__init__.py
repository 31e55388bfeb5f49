"""Kubernetes objects as JSON: their parts, names and selectors, and the errors of the server's responses.

This package must not know any kind. Its danger is that it changes an object in place while other code holds the object.
"""
