"""The routing policies, one module each, named as the policy is (`-` written `_`); `catalogue` gives them by name.

A policy looks at a `PoolView` and answers with a `Decision`. It keeps only its own memory (a ring, a hotness tree, a
counter), never counts load itself and never touches a queue. Its danger: it is asked for every request, so anything
slower than a walk over the candidates is felt at once.
"""
