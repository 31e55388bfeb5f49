"""A small Kubernetes API server: what the operator, kubectl and the Python client need, on one bare machine.

It stores objects in one SQLite file, serves discovery, OpenAPI, watches, server-side apply, custom resources with
defaulting, pruning, validation and CEL, and collects what has lost its owner. It runs no controllers and no admission
webhooks: whoever wants Pods from a Deployment needs a real cluster. Every account is allowed everything, so it must
never listen on an address that others can reach, and it must never be offered for production.

As a process: `python -m fairlead_sandbox.kubernetes_api.main --state-dir DIR --host 127.0.0.1 --port 0`.

In a test, on a free port of the loopback interface:

    async with running_server(state_dir) as server:
        server.url, server.kubeconfig, server.token("admin"), server.certificate_authority

`running_server` is in `fairlead_sandbox.kubernetes_api.serving.server`. The danger to keep in mind: all state is read
and written on one event loop, so a slow request handler stalls every watch.
"""
