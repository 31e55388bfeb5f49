"""Services for the pods of one node. This process takes the place of kube-proxy, a cluster's DNS and its load
balancers.

The pods share the machine's network, where nothing routes 10.96.0.0/16 and no DNS server knows Services. Therefore each
Service has a loopback address. This process listens there and passes connections on to the Service's ready pods. Pods
find the address in their /etc/hosts under every name that a cluster's DNS gives the Service. Nothing listens at the
clusterIP itself. A Service of type LoadBalancer is also reached at 127.0.0.1 with its own port, and its status says so.

`processkube.service_endpoints` and `names` make decisions and are pure; `proxying` and `following` carry them out.
"""
