"""A small Kubernetes API server for one bare machine: enough for the operator, kubectl and the Python client.

It stores objects in one SQLite file and serves discovery, OpenAPI, watches and server-side apply. Custom resources are
defaulted, pruned, and validated by their schema and their CEL rules. Objects whose owner is gone are deleted.

A node that stops reporting is lost, and its pods are treated accordingly. Deployments, StatefulSets and Jobs get their
pods; DaemonSets do not. Every namespace has the service account `default`, because no pod can be created without a
service account. There are no ResourceQuotas, LimitRanges or admission webhooks. The server's own accounts may do
everything. Therefore the server must never listen on an address that others can reach, and must never be offered for
production.

As a process: `python -m processkube.kubernetes_api.main --state-dir DIR --host 127.0.0.1 --port 0`.

In a test, on a free port of the loopback interface:

    async with running_server(state_dir) as server:
        server.url, server.kubeconfig, server.token("admin"), server.certificate_authority

`running_server` is in `processkube.kubernetes_api.serving.server`.

The danger of this package: all state is read and written on one event loop, so a slow request handler delays every
watch.
"""
