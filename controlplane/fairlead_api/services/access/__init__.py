"""Who may do what: tokens, login links, web sessions, and how many refusals are written down one by one.

It must not compare secrets in the clear or name a secret in an error. Its danger: an answer remembered for a caller
whose token was revoked.
"""
