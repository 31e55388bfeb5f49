"""A kubelet that runs pods as processes: one Node whose pods are those of pools and of the chart.

Each container is an operating-system process; each pod has its own IP address. As a real kubelet does, this one starts
the pods' containers, asks their real probes, restarts crashed containers, honours deletion grace and reports status.
Pending pods, which a scheduler places on a real cluster, it binds itself. After its own restart it takes over the
processes that still run.

There are no images: `images` has the programs of those that Fairlead needs, from the installed package. A container
with volumes, a user or a read-only root runs in namespaces of its own (`enclosure`), so it sees exactly the files that
its manifest says; one without is a plain process of the user who started processkube. All share the machine's network:
where a manifest says 0.0.0.0, the pod's address is meant. Resources and limits are not enforced.

`deciding`, `probe_states`, `statuses`, `variables`, `volume_files` and `expansion` decide: they are pure and take times
as arguments. `agent`, `preparation`, `runtime` and `pods_api` act.
"""
