"""Pods of instances, read for people: logs and events from the Kubernetes API, and the metrics of their engines. None
of this is stored.

The danger here: a log may contain text of clients' requests, so reading it needs the role operator.
"""
