"""Refused requests by cause, and the remedy for each cause.

Routers refuse requests and choose the status (`fairlead.routing.admission.refusals`); this package counts the reported
refusals. It must not count a request under two causes. The danger: counts from samples are compared with counts from
rollups.
"""
