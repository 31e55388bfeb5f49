"""Kubernetes for one bare machine, without containers: its pods are processes.

`kubernetes_api` is an API server on SQLite, `kubelet` is a node that runs pods as processes, and `service_proxy` lets
these pods reach Services. Each of them is a separate process and reaches the others only through the Kubernetes API, so
each also works with a real cluster. `python -m processkube` starts any of them.

processkube is for developing and testing programs that run on Kubernetes, which must not notice the difference from a
real cluster. It must never be offered for production. Its danger is an undocumented difference. Therefore README.md
lists the known differences, and the contract suites also run against a real API server.
"""
