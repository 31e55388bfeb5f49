"""One description of a document, three uses: the schema of a CRD, reading a document into frozen dataclasses,
and writing one out again.

A dataclass field made by a function of `shapes` carries its `Shape`: what may stand there. `openapi` turns a class into
an OpenAPI v3 schema with defaults, bounds and CEL rules; `reading` checks a document against the same shapes and rules
and builds the class; `writing` does the reverse. The spec of a pool and the parameters of policies are described so. It
decides nothing about pools.

Its danger: a rule is said twice, in CEL and in Python. `tests/contract/crds/test_rules.py` holds
both to the same answers.
"""
