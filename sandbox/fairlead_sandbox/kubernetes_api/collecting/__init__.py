"""Deleting: finalizers, garbage without owners, disruption budgets, expired events.

It must not delete what still has a finalizer. Its danger: an owner looked up in the wrong namespace.
"""
