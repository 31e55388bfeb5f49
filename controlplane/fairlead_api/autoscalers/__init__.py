"""Ports at which other people's autoscalers request a pool's figures: KEDA by gRPC, a HorizontalPodAutoscaler through
Kubernetes' own API.

`figures` keeps the figures for both. `keda` has KEDA's messages and their answers, and `scaler_port` KEDA's streams.
`external_metrics` has the documents of `external.metrics.k8s.io` and their selectors. `delegation` lets the Kubernetes
API identify and authorize the caller, and `metrics_port` joins these two. The danger here: the ports are open beside
the API's own port, so each checks rights in its own way, and neither may reveal more than the figures.
"""
