"""A kubelet that runs pods as processes: one Node whose pods are simulated engines.

Each pod is an operating-system process with its own IP address. As a real kubelet does, this one starts the pods'
containers, asks their real probes, restarts crashed containers, honours deletion grace and reports status. Pending
pods, which a scheduler places on a real cluster, it binds itself. After its own restart it takes over the
processes that still run.

`deciding`, `probe_states`, `statuses` and `expansion` decide: they are pure and take times as arguments. `agent`,
`runtime` and `pods_api` act. This kubelet runs only the image `fairlead/engine` and isolates nothing: a pod here is a
process of the user who started the sandbox.
"""
