"""For tests of what runs on Kubernetes: a server on a thread, a blocking client, a kubelet that a test moves by hand.

It needs the extra `testing`. Its danger: no pod of `workloads` ever runs, so nothing here shows that a program works.
"""
