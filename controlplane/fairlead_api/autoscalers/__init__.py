"""Ports at which other people's autoscalers ask for a pool's figures: KEDA by gRPC, a HorizontalPodAutoscaler through
Kubernetes' own API.

`figures` keeps what both show. `keda` are KEDA's messages and what they are answered with, `scaler_port` its streams.
`external_metrics` are the documents of `external.metrics.k8s.io` and the selectors that narrow them, `delegation` who
asks and what the cluster lets them read; `metrics_port` joins these. Its danger: the ports are open beside the
API's own, so each asks for rights in its own way, and neither may tell more than the figures.
"""
