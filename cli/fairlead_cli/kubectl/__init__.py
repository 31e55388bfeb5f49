"""`kubectl fairlead`: the commands about a cluster's pools, through the API server that kubectl is signed in to.

Nobody forwards a port: requests go through the API server's service proxy, by a `kubectl proxy` of the command's own,
so that every way in which kubectl signs in works here. The danger is a credential that goes where it does not belong:
the API server takes the Authorization header for its own, so Fairlead's token travels in X-Fairlead-Token.
"""
