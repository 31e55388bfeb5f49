"""Cells of CSV that no spreadsheet runs as a formula, whatever separator its country gives to lists."""

import re

_INSIDE = re.compile(r'([;\t\r\n][ "]*)(?=[=+\-@＝＋－＠])')
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FIRST = re.compile(r" *[=+\-@＝＋－＠\t\r\n]")


def harmless(cell: str) -> str:
    """The cell with an apostrophe before anything that a spreadsheet would run as a formula: at its beginning, and
    after a semicolon, a tab and an end of line, where one that separates by those begins another cell. Plain numbers
    stay numbers.
    """
    if _NUMBER.fullmatch(cell):
        return cell
    inside = _INSIDE.sub(r"\1'", cell)
    return f"'{inside}" if _FIRST.match(inside) else inside
