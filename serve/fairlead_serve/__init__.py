"""`fairlead serve`: Fairlead in front of running engines, without Kubernetes.

A file names the engines and replaces the Kubernetes API. A source (`source`) replaces the operator: it probes each
engine, and reports the pool's state to the control API through the operator's own client. The control API writes
changes that people make on its pages into the same files (`file_cluster`). So API, routers and pages need no special
case. `fairlead serve` cannot create or delete instances; the API refuses such changes with a reason.

This package must not decide how requests are routed, and must not write a file that the user gave. The danger: a slow
engine counts as dead and leaves the routing table, and its sessions lose their caches.
"""
