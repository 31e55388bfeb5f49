"""Variables that several processes read, each described once."""

from fairlead_process.environment import variable
from fairlead_process.kinds import Address, Addresses, Text

API_URLS = variable(
    "FAIRLEAD_API_URL",
    Addresses("http://127.0.0.1:8080"),
    "the control API's address, or the addresses of several processes without a load balancer",
    "the first is used until it fails, then the next",
)
PUBLIC_URL = variable(
    "FAIRLEAD_PUBLIC_URL",
    Address("http://127.0.0.1:8080"),
    "the address at which people open the web UI, with a path if it has one",
    "requests that name another host are refused; https makes cookies secure",
    default_shown="the address it listens on",
)
KUBECONFIG = variable(
    "KUBECONFIG",
    Text("the path of a kubeconfig file", "path"),
    "which cluster, and as whom",
    default_shown="the pod's service account",
)
