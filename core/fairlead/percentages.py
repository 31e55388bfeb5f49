"""The one format in which all sentences and pages show a share as a percentage."""


def percentage(share: float) -> str:
    """Return a share from 0 to 1 as a percentage with one decimal: 0.834 → `83.4 %`. Only a share of exactly 1 gives
    `100.0 %`, and only exactly 0 gives `0.0 %`. A share near 1 or 0 gets more decimals: 0.9996 → `99.96 %`.
    """
    percent = round(share * 100, 9)
    for digits in (1, 2, 3):
        words = f"{percent:.{digits}f}"
        if percent in (0.0, 100.0) or float(words) not in (0.0, 100.0):
            return f"{words} %"
    return "> 99.999 %" if percent > 50 else "< 0.001 %"
