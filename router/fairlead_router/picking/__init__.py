"""The endpoint picker: an Envoy proxy asks by gRPC (ext_proc) where each request should go, and the proxy itself sends
the request there.

`exchange` is a pure state machine for the order of messages. `accounts` reports a picked request's progress to its
pool, `wire` encodes and decodes messages; HTTP/2 and gRPC are in `fairlead_process.grpc_server`. This package must not
send requests: the proxy does. Its danger is a stream that ends before the account of its request is settled, because
the pool would then count the request as in flight permanently.
"""
