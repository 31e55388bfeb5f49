"""Refusals of pods that this kubelet cannot run, with the reason and message for the pod's status."""


class PodRefused(Exception):
    """The pod asks for something that this kubelet cannot do.

    `reason` becomes the container's waiting reason, and the error's text becomes its message.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def bad_configuration(message: str) -> PodRefused:
    """Return a refusal of the manifest, with the reason that a kubelet uses."""
    return PodRefused("CreateContainerConfigError", message)
