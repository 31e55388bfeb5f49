"""The process that serves the control API and the web UI together, on one port.

It joins two components that must not know each other. It must not decide, read or store anything itself. The danger:
both components share one event loop, so a slow page could delay a router's report.
"""
