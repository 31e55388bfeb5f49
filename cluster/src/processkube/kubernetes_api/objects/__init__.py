"""Kubernetes objects as JSON: their parts, names and selectors, and the errors with which the server answers.

It must not know any kind. Its danger: to change an object in place while other code holds it.
"""
