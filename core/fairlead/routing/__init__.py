"""Routing: which instance a request goes to, when it is sent, and what is remembered about it.

Policies choose (`policies/`; named in `catalogue`, built by `registry`), rings and the prefix index inform them, and
`scheduler.PoolScheduler` owns accounting, late-binding queues, bindings and records for one pool. Nothing here waits, sleeps, logs or reads
a clock: the caller passes the time and carries out the dispatches it is given. Its danger: it runs for every request, so each line costs
every user, and a count not undone on some exit path makes an instance look busy for ever.
"""
