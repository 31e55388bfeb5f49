"""Services for the pods of one node: kube-proxy, a cluster's DNS and its load balancers together.

The pods share the machine's network, where nothing routes 10.96.0.0/16 and no DNS server knows Services. So each
Service has a loopback address of this process, which passes connections on to the Service's ready pods; pods find the
address in their /etc/hosts under every name that a cluster's DNS gives the Service. Its clusterIP itself leads nowhere.
A Service of type LoadBalancer is also reached at 127.0.0.1, at its own port, and its status says so.

`endpoints` and `names` decide, purely; `proxying` and `following` act.
"""
