"""The operator: turns InferencePools into running, drained and replaced instances.

It observes the cluster, asks `fairlead.reconciling` what to do, and applies it; each pool has its own level-triggered loop. All it knows is in
the cluster (annotations, status), so it may die between any two calls. It must not route requests or talk to Postgres. Its danger: it is the
only part that deletes pods, so every deletion goes through draining.
"""
