"""Code that every Fairlead process needs: settings, logs, tasks, clocks, policies, starting, the Kubernetes API.

The decision core does not use this package; the components build on both packages. Code that only one component needs
(a router's token, a pool's object) stays in that component. Every process that uses a module also loads the module's
imports. So each module stands alone and imports little.
"""
