"""Labels and annotations on an instance's pod that the control API writes or queries by, and that the operator
follows.
"""

POOL_LABEL = "fairlead.dev/pool"
"""The label that names the instance's pool."""

GROUP_LABEL = "fairlead.dev/group-of"
"""The label that names the pool of each pod of an instance with several nodes; only the leader has `POOL_LABEL` too."""

CORDONED_ANNOTATION = "fairlead.dev/cordoned"
"""Set by people: with the value `true` the instance gets no new requests."""

DRAIN_ANNOTATION = "fairlead.dev/drain"
"""Set by people: with the value `true` the instance is drained, and another instance replaces it."""

WEIGHT_ANNOTATION = "fairlead.dev/weight"
"""Set by people: the instance's weight on the hash ring; `0.5` gives it half of another instance's
share of the keys.
"""
