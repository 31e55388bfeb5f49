"""Pods of instances, read for people: logs and events by the Kubernetes API, and their engines' own metrics. Nothing of
them is stored.

The danger here: a log may have text of clients' requests, so it needs the role operator.
"""
