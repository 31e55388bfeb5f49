"""The parts of a release besides its images, wheels and chart: lists of their contents, signatures, and provenance.

Everything is made from files and checked without a service. Images, signatures and attestations are OCI objects as
cosign writes them, so that `cosign verify --key` and containers' `policy.json` can check them.
"""
