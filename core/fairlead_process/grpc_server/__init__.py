"""The server side of gRPC over HTTP/2, as far as the streams of proxies and autoscalers need it.

`http2` encodes frames and headers as bytes, `frame_reader` cuts arriving bytes into frames, `grpc_connection` is one
connection and `grpc_stream` one call on it. The package must not know the meaning of messages. Anybody who reaches a
port may send anything, so everything that a peer can make the server store or compute has a bound here.
"""
