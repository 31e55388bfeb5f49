"""Variables that several processes read, each described once."""

from fairlead_process.environment import variable
from fairlead_process.kinds import Address, Text

API_URL = variable("FAIRLEAD_API_URL", Address("http://127.0.0.1:8080"), "where the control API is")
PUBLIC_URL = variable(
    "FAIRLEAD_PUBLIC_URL",
    Address("http://127.0.0.1:8080"),
    "the address people open the web UI at, with a path if it has one",
    "requests that name another host are refused; https makes cookies secure",
    default_shown="the address it listens on",
)
KUBECONFIG = variable(
    "KUBECONFIG",
    Text("the path of a kubeconfig file", "path"),
    "which cluster, and as whom",
    default_shown="the pod's service account",
)
