"""What this kubelet cannot do, in the words of the pod's status."""


class PodRefused(Exception):
    """The pod asks for something that this kubelet cannot do.

    `reason` becomes the container's waiting reason, and the error's text becomes its message.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def bad_configuration(message: str) -> PodRefused:
    """A refusal of what the manifest asks for, as a kubelet names it."""
    return PodRefused("CreateContainerConfigError", message)
