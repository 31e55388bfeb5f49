"""What the operator reports of pools and what people read of them.

It must not decide what the cluster should look like; the operator does. Its danger: a state that arrives late and
would replace a newer one.
"""
