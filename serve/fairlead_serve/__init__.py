"""`fairlead serve`: Fairlead in front of running engines, without Kubernetes.

A file names the engines and replaces the Kubernetes API. A source (`source`) plays the operator's part: it asks each
engine whether it answers, and reports the pool's state to the control API through the operator's own client. The
control API writes the changes that people make on pages into the same files (`file_cluster`). So API, routers and pages
need no special case. Making and ending instances is impossible here; the API refuses it and says why.

It must not decide how requests are routed, and must not write a file that the user gave. The danger here: an engine
taken for dead while it is only slow; it leaves the routing table, and its sessions lose their cache.
"""
