"""Controllers of workloads, like those of kube-controller-manager: they make Pods for Deployments and other workloads.

Each decides purely, from objects to writes; `controllers` follows the store and carries the writes out. It must not
use HTTP. Its danger: two controllers that undo each other's writes without end.
"""
