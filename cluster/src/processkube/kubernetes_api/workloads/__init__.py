"""Controllers of workloads, as kube-controller-manager has them: they make Pods of Deployments and of what else runs.

Each decides purely, from objects to writes; `controllers` follows the store and carries the writes out. It must not
reach over HTTP. Its danger: two controllers that take back each other's writes for ever.
"""
