"""Controllers of workloads, like those in kube-controller-manager: they make Pods for Deployments and other workloads.

Each controller turns objects into the writes that are needed; these decisions are pure. `controllers` follows the store
and carries the writes out. This package must not use HTTP. Its danger is two controllers that undo each other's writes
again and again.
"""
