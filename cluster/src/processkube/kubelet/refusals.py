"""Errors for pods that this kubelet cannot run. Each has the reason and the message for the pod's status."""


class PodRefused(Exception):
    """Raised for a pod that asks for something that this kubelet cannot do.

    `reason` becomes the container's waiting reason in the pod's status, and the error's text becomes its message.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def bad_configuration(message: str) -> PodRefused:
    """Return a PodRefused for a fault in the manifest, with the reason that a real kubelet gives."""
    return PodRefused("CreateContainerConfigError", message)
