"""Ports at which external autoscalers request a pool's figures: KEDA over gRPC, a HorizontalPodAutoscaler through the
Kubernetes API.

`figures` holds the figures for all ports. `keda` decodes KEDA's messages and encodes responses, and `scaler_port`
serves KEDA's streams. `external_metrics` makes the documents of `external.metrics.k8s.io` and evaluates selectors.
`delegation` lets the Kubernetes API identify and authorize the caller, and `metrics_port` joins `external_metrics` and
`delegation`. The danger here: these ports are open in addition to the API's port, so each must check its callers and
reveal no more than the figures.
"""
