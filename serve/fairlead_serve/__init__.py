"""`fairlead serve`: Fairlead in front of running engines, without Kubernetes.

A file names the engines and replaces the Kubernetes API. A source (`source`) replaces the operator: it probes each
engine, and reports the pool's state to the control API through the operator's own client. The control API writes
changes that people make on its pages into the same files (`file_cluster`). So API, routers and pages need no special
case. It cannot create or delete instances; the API refuses that and says why.

This package must not decide how requests are routed, and must not write a file that the user gave. Its danger is an
engine that is taken for dead while it is only slow: it leaves the routing table, and its sessions lose their cache.
"""
