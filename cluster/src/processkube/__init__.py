"""Kubernetes whose pods are processes, on one bare machine and without containers.

`kubernetes_api` is an API server on SQLite, `kubelet` a node that runs pods as processes, and `service_proxy` lets
those pods reach Services. Each is a separate process and uses only the Kubernetes API to reach the others, so each also
works with a real cluster. `python -m processkube` starts any of them.

It exists to develop and test programs that run on Kubernetes, and must never be offered for production. Programs must
not notice that they run here. Its danger is an undocumented difference from a real cluster: README.md lists the known
differences, and the contract suites run against a real API server too.
"""
