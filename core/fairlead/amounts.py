"""A number with its noun and verb, in the forms that the number needs: `1 session moves`, `2 sessions move`. Pure.

`tests/unit/project/test_amounts.py` finds sentences and templates that put a number before a plural without this
module.
"""

_IRREGULAR = {"are": "is", "were": "was", "have": "has", "do": "does"}


def amount(number: float | None, noun: str, verb: str = "") -> str:
    """Return the number, rounded and with thousands separated, its noun and its verb: (1, `entry`) → `1 entry`, (1200,
    `entry`) → `1,200 entries`, (1, `session`, `move`) → `1 session moves`. None → an en dash.

    `noun` is a singular; its last word gets the plural ending. `verb` is in the plural form.
    """
    whole = None if number is None else round(number)
    one = whole == 1
    words = ["–" if whole is None else f"{whole:,}", noun if one else plural(noun)]
    return " ".join([*words, _IRREGULAR.get(verb) or plural(verb) if one else verb] if verb else words)


def plural(noun: str) -> str:
    """Return the plural of a noun whose plural is regular: `session` → `sessions`, `entry` → `entries`, `batch` →
    `batches`.
    """
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
