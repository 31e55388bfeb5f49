"""Kubernetes whose pods are processes, on one bare machine and without containers.

`kubernetes_api` is an API server on SQLite, `kubelet` a node that runs pods as processes, and `service_proxy` lets
those pods reach Services. Each is a process of its own and talks to the others by the Kubernetes API alone, so each
also works with a real one. `python -m processkube` starts any of them.

It exists to develop and test what runs on Kubernetes, and must never be offered for production. Whatever runs here may
not know that it does. Its danger is a difference from a real cluster that nobody has written down: README.md lists
those that are known, and the contract suites run against a real API server too.
"""
