"""Deletes objects: finalizers, dependents whose owners are gone, disruption budgets, expired events.

It must not delete an object that still has a finalizer. Its danger: to look up an owner in the wrong namespace.
"""
