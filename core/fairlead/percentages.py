"""The one format of a share as a percentage, in all sentences and pages."""


def percentage(share: float) -> str:
    """Return a share from 0 to 1 as a percentage with one decimal: 0.834 → `83.4 %`. Only all and nothing are `100.0 %`
    and `0.0 %`; a share near them has the decimals that show it: 0.9996 → `99.96 %`.
    """
    percent = round(share * 100, 9)
    for digits in (1, 2, 3):
        words = f"{percent:.{digits}f}"
        if percent in (0.0, 100.0) or float(words) not in (0.0, 100.0):
            return f"{words} %"
    return "> 99.999 %" if percent > 50 else "< 0.001 %"
