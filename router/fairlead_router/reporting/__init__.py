"""Reports schedulers' records to the control API, in batches that are kept on disk until the API acknowledges them.

This package must not lose a record, even if a process dies or the control API cannot be reached. It must not slow down
requests: it takes records that a scheduler no longer needs, encodes each record once, and does all file work in
threads. Its danger is a batch that the API cannot accept: such a batch must not block the others.
"""
