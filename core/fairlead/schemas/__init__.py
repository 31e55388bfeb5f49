"""One description of a document with three uses: a CRD's schema, reading into frozen dataclasses, and writing.

A dataclass field made by a function of `shapes` has a `Shape`, which describes the values that the field may have.
`openapi` turns a class into an OpenAPI v3 schema with defaults, bounds and CEL rules. `reading` checks a document
against the same shapes and rules and builds the class. `writing` does the reverse. A pool's spec and the parameters of
policies are described this way. This package decides nothing about pools.

Each rule is written twice, in CEL and in Python, so the two versions could differ. `tests/contract/crds/test_rules.py`
checks that both give the same answers.
"""
