"""Changes cells of CSV such that no spreadsheet program runs them as formulas, whatever separator is usual in the
user's country.
"""

import re

_INSIDE = re.compile(r'([;\t\r\n][ "]*)(?=[=+\-@＝＋－＠])')
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FIRST = re.compile(r" *[=+\-@＝＋－＠\t\r\n]")


def harmless(cell: str) -> str:
    """Put an apostrophe before each part of a cell that a spreadsheet program would run as a formula. Such parts are at
    the cell's beginning, and after a semicolon, a tab or an end of line, where a program with another separator begins
    another cell. Plain numbers stay numbers.
    """
    if _NUMBER.fullmatch(cell):
        return cell
    inside = _INSIDE.sub(r"\1'", cell)
    return f"'{inside}" if _FIRST.match(inside) else inside
