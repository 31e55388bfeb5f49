"""A kubelet that runs pods as processes, on one Node for all pods of the cluster.

Each container is a process of the operating system; each pod has its own IP address. Like a real kubelet, this kubelet
starts the pods' containers, runs their probes, restarts crashed containers, honours deletion grace periods and reports
status. It also binds pending pods to its node, which a scheduler does in a real cluster. After a restart it takes over
the processes that still run.

There are no real images: `images` maps each image that Fairlead needs to programs of the installed package. A container
with volumes, a user or a read-only root runs in its own namespaces (`enclosure`), so it sees exactly the files that its
manifest says. Any other container is a plain process of the user who started processkube. All containers share the
machine's network; where a manifest says 0.0.0.0, the pod's address is used instead. Limits of resources are not
enforced.

`deciding`, `probe_states`, `statuses`, `variables`, `volume_files` and `expansion` make decisions. They are pure: times
are arguments. `agent`, `preparation`, `runtime` and `pods_api` carry the decisions out.
"""
