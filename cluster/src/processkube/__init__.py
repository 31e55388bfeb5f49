"""Kubernetes whose pods are processes, on one bare machine and without containers.

`kubernetes_api` is an API server on SQLite, `kubelet` a node that runs pods as processes, and `service_proxy` lets
those pods reach Services. Each is a separate process and uses only the Kubernetes API to reach the others, so each also
works with a real cluster. `python -m processkube` starts any of them.

It is for developing and testing programs that run on Kubernetes, and must never be offered for production. These
programs must not notice the difference from a real cluster. Its danger is an undocumented difference: README.md lists
the known ones, and the contract suites run against a real API server too.
"""
