"""Controllers of workloads, like the controllers of kube-controller-manager: they make Pods for Deployments and other
workloads.

Each controller decides purely, from objects to writes; `controllers` follows the store and carries the writes out. This
package must not use HTTP. Its danger is two controllers that undo each other's writes without end.
"""
