"""What a release has beside its images, wheels and chart: lists of what is in them, signatures, and their origin.

Everything is made of files and checked without a service. Images, signatures and attestations are OCI objects as cosign
writes them, so that `cosign verify --key` and containers' `policy.json` judge them.
"""
