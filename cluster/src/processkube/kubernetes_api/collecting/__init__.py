"""Deletes objects, with finalizers, disruption budgets and collection of garbage and expired events; finds lost nodes.

This package must not delete an object that still has a finalizer. Its danger is a lookup of an owner in the wrong
namespace.
"""
