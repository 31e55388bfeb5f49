"""Tools for tests of programs that run on Kubernetes: a server on a thread, a blocking client, and a namespace in which
a test plays the kubelet.

They need the extra `testing`. Their danger: no pod in `workloads` ever runs, so a test of this kind does not show that
a program works.
"""
