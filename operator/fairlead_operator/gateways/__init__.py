"""Announces pools to gateways: creates the GAIE InferencePool of each pool with `spec.gateway`, and reads the statuses
that gateways write on it.

`manifests` builds the objects, `keeping` creates and removes them, `finding` and `objectives` read what gateways and
teams write, and `watching` looks for changes. Nothing here is called for a pool without `spec.gateway`, so in a cluster
without gateways the operator needs no rights for gateway objects.
"""
