"""The endpoint picker: an Envoy asks by gRPC (ext_proc) where to send each request, and sends the request itself.

`exchange` is the order of the protocol's messages, pure. `accounts` reports a picked request's progress to its pool,
`wire` turns messages to bytes; HTTP/2 and gRPC are `fairlead_process.grpc_server`. This package must not send requests:
the proxy does. Its danger is a stream that ends before its request's account is settled: the request then counts in its
pool permanently.
"""
