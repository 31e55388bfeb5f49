"""Kubernetes objects as JSON: their parts, names and selectors, and the errors with which the server answers.

This package must not know any kind. Its danger is a change of an object in place while other code holds it.
"""
