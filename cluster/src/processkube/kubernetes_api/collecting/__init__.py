"""Deletes objects: with finalizers and disruption budgets, as garbage, and as expired events. Also finds lost nodes.

This package must not delete an object that still has a finalizer. Its danger is that it looks for an owner in the wrong
namespace.
"""
