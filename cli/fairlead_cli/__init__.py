"""The `fairlead` command: one name for everything a person types.

It only finds the subcommand, runs it, and turns errors into one line; what the subcommands do is in their packages, and
each is imported only when it is asked for, so that `fairlead --help` is quick and an image without the sandbox can
still run `fairlead router`. Its danger is a traceback in front of a user: nothing but `FAIRLEAD_DEBUG=1` may show one.
"""
