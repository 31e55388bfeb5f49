"""A process kubelet: one Node whose pods are simulated engines, each an operating-system process with
an IP address of its own.

It binds pending pods, starts their containers, asks their real probes, restarts what crashed, honours deletion grace
and reports status, as a kubelet does; it survives its own restart by taking over running processes. Deciding
(`deciding`, `probe_states`, `statuses`,
`expansion`) is pure and takes times as arguments; `agent`, `runtime` and `cluster` do the rest. It
runs nothing but the image
`fairlead/engine` and isolates nothing: a pod here is a process of the person who started the sandbox.
"""
