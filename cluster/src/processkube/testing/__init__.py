"""Tools for tests of programs that run on Kubernetes: a server on a thread, a blocking client, a kubelet that a test
moves by hand.

They need the extra `testing`. The danger is that no pod of `workloads` ever runs, so nothing here shows that a program
works.
"""
