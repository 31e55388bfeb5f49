"""Expands `$(NAME)` in commands, arguments and values as Kubernetes does.

Unknown names stay as they are; `$$(NAME)` becomes the text `$(NAME)`.
"""

import re
from collections.abc import Mapping, Sequence

_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with the value of each known variable in place of its `$(NAME)`, and one dollar sign in place of
    `$$`.
    """

    def replacement(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return variables.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replacement, text)


def expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the texts, each expanded by `expand`."""
    return tuple(expand(text, variables) for text in texts)
