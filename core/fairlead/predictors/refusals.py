"""Reasons why a model is refused."""

from enum import StrEnum

from fairlead.errors import FairleadError


class ModelFault(StrEnum):
    """The fault of a refused model. `corrupt`: its bytes are damaged · `features`: it was trained on other features ·
    `not-finite`: a weight is not a number.
    """

    CORRUPT = "corrupt"
    FEATURES = "features"
    NOT_FINITE = "not-finite"


class ModelRefused(FairleadError):
    """A model that cannot be used. The router keeps its previous model."""

    def __init__(self, fault: ModelFault, detail: str) -> None:
        self.fault = fault
        self.detail = detail
        super().__init__(f"the model is refused ({fault.value}): {detail}")

    def __reduce__(self) -> tuple[type["ModelRefused"], tuple[ModelFault, str]]:
        return type(self), (self.fault, self.detail)
