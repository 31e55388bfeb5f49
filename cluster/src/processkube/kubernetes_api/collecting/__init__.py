"""Deletes objects, with finalizers, disruption budgets and collection of garbage and expired events; finds lost nodes.

It must not delete an object that still has a finalizer. Its danger: to look up an owner in the wrong namespace.
"""
