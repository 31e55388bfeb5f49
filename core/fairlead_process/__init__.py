"""What every process of Fairlead needs and none should have of its own: settings, logs, tasks, clocks, policies,
starting, the Kubernetes API.

The decision core stays free of it; the components stand on it side by side. It must know no component: what is special
to one (a router's token, a pool's object) stays there. Its danger is weight: whatever a module here imports, every
process that uses it loads, so each stands alone.
"""
