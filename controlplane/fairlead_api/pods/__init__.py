"""Pods of instances, read from the Kubernetes API for people: logs and events. Nothing of them is stored.

The danger here: a log may have text of clients' requests, so it needs the role operator.
"""
