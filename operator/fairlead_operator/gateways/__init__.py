"""Shows pools to gateways: the GAIE InferencePool of each pool that asks for it, and what gateways say of it.

`manifests` builds the objects, `observing` reads what gateways say, `keeping` makes and removes, `watching` looks for
news. Nothing here is called for a pool without `spec.gateway`, so a cluster without gateways needs no right for it.
"""
