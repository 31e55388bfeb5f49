"""Information about instances' pods for people: logs and events from the Kubernetes API, and the metrics of the pods'
engines. None of this is stored.

The danger here: a log may contain text of clients' requests, so reading it needs the role operator.
"""
