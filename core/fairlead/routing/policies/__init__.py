"""The routing policies, one module each, named like the policy (with `_` for `-`). `catalogue` finds them by name.

A policy reads a `PoolView` and returns a `Decision`. It keeps only its own memory (a ring, a hotness tree, a counter),
never counts load itself and never changes a queue. The danger of this package: a policy runs for every request, so
anything slower than one pass over the candidates is noticed at once.
"""
