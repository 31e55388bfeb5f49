"""Reports schedulers' records to the control API in batches, which are kept on disk until acknowledged.

This package must not lose a record, even if a process dies or the control API cannot be reached, and it must not slow
requests down: it takes records that a scheduler no longer needs, encodes each record once, and does all file work in
threads. Its danger is a batch that the API cannot accept: such a batch must not block the others.
"""
