"""The operator: turns InferencePools into running, drained and replaced instances.

Start reading in `handlers`, which kopf calls. A daemon per pool observes the cluster, asks `fairlead.reconciling` for
the next actions, and applies them. All its state is in the cluster (annotations, status), so the operator may be killed
between any two calls. It must not route requests or talk to Postgres. The danger: no other component deletes pods, so
every deletion must go through draining.
"""
