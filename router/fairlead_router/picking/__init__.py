"""The endpoint picker: an Envoy asks by gRPC (ext_proc) where each request is to go, and sends it there itself.

`exchange` is the order of the protocol's messages, pure. `accounts` reports a picked request's progress to its pool,
`wire` turns messages to bytes; HTTP/2 and gRPC are `fairlead_process.grpc_server`. It must not send requests: the proxy
does. Its danger: a stream that ends before its request's account is settled counts in its pool permanently.
"""
