"""The endpoint picker: an Envoy asks by gRPC (ext_proc) where each request is to go, and sends it there itself.

`exchange` is the order of the protocol's messages, pure. `accounts` reports a picked request's progress to its pool,
`wire` turns messages to bytes. `grpc_stream`, `grpc_connection`, `frame_reader` and `http2` are HTTP/2 and gRPC, as far
as a server of such streams needs them. It must not send requests: the proxy does. Its danger: a stream that ends before
its request's account is settled counts in its pool permanently.
"""
