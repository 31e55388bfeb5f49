"""A kubelet that runs pods as processes: one Node for all pods of the cluster.

Each container is an operating-system process; each pod has its own IP address. Like a real kubelet, this one starts the
pods' containers, runs their real probes, restarts crashed containers, honours deletion grace and reports status. It
also binds pending pods itself, which a scheduler does on a real cluster. After a restart it takes over the processes
that still run.

There are no real images: `images` maps each image that Fairlead needs to programs of the installed package. A container
with volumes, a user or a read-only root runs in namespaces of its own (`enclosure`), so it sees exactly the files that
its manifest says; any other container is a plain process of the user who started processkube. All share the machine's
network: where a manifest says 0.0.0.0, the pod's address is used. Resources and limits are not enforced.

`deciding`, `probe_states`, `statuses`, `variables`, `volume_files` and `expansion` decide: they are pure and take times
as arguments. `agent`, `preparation`, `runtime` and `pods_api` act.
"""
