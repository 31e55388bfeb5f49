"""The handlers that kopf calls, a few lines each.

`pools` reconciles and finalizes, `instances` and `children` wake a pool's worker, `lifecycle` starts and stops.

They hold no logic, because it could only be tested with kopf.
"""
