"""Code that every Fairlead process needs: settings, logs, tasks, clocks, policies, starting, the Kubernetes API.

The decision core does not use this package; the components build on both. It must know no component: code that only one
component needs (a router's token, a pool's object) stays in that component. The danger here is weight: every process
that uses a module also loads the module's imports, so each module stands alone.
"""
