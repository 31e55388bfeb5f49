"""Deletes objects: at a client's request, as garbage, and as expired events. It respects finalizers and disruption
budgets. It also finds lost nodes.

This package must not delete an object that still has a finalizer. Its danger is that it looks for an owner in the wrong
namespace.
"""
