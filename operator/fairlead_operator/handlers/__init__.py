"""Kopf's decorated functions, a few lines each: they only wake the loop of the pool concerned.

Logic does not belong here, because a decorated function cannot be called by a typed test.
"""
