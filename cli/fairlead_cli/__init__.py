"""The `fairlead` command, which has all subcommands.

It finds the subcommand, runs it, and turns an error into one line. The subcommands are in their components' packages.
Each is imported only when it is used, so that `fairlead --help` is quick and an image without the sandbox can still run
`fairlead router`. The danger: a user sees a traceback. Only `FAIRLEAD_DEBUG=1` may show one.
"""
