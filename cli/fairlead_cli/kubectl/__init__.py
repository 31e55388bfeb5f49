"""`kubectl fairlead`: the commands about a cluster's pools, through the API server to which kubectl is signed in.

No port needs to be forwarded, because requests go through the API server's service proxy. A `kubectl proxy` that the
command starts passes them on, so every way in which kubectl signs in works. The danger is a credential that is sent to
the wrong server. The API server would read the Authorization header as its own, so Fairlead's token is sent in
X-Fairlead-Token.
"""
