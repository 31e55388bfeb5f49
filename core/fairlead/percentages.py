"""The one format of a share as a percentage, in all sentences and pages."""


def percentage(share: float) -> str:
    """Return a share from 0 to 1 as a percentage with one decimal: 0.834 → `83.4 %`."""
    return f"{share * 100:.1f} %"
