"""Refused requests by cause, and the remedy for each cause.

Routers refuse requests (`fairlead.routing.admission.refusals`) with the status that belongs to the reason
(`fairlead.reports.rejections`). This package counts the reported refusals. It must not count a request under two
causes. The danger: counts from samples are compared with counts from rollups.
"""
