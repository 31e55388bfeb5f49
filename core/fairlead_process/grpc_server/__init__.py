"""A gRPC server's side of HTTP/2, as far as the streams of proxies and autoscalers need it.

`http2` are frames and headers as bytes, `frame_reader` cuts what arrives, `grpc_connection` is one connection and
`grpc_stream` one call on it. It must not know what the messages mean. Its danger: whoever reaches a port may send
anything, so all that a peer can make it keep or compute has a bound here.
"""
