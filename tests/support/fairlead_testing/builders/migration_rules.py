"""Checks a migration's code against the rules for migrations that run while the last release works
(docs/development.md).
"""

import ast
import re
from collections.abc import Iterator

GROWING = frozenset(
    {
        *(
            "arrivals",
            "audit_log",
            "bindings",
            "canary_samples",
            "decisions",
            "gateway_key_use",
            "instance_transitions",
            "load_rollups_10s",
            "load_rollups_1m",
        ),
        *(
            "load_samples",
            "migrations",
            "move_rollup_queue",
            "move_rollups_1h",
            "move_rollups_1m",
            "plans",
            "pool_events",
            "recorded_requests",
            "rejections",
            "reports",
            "reroutes",
            "scaling_decisions",
        ),
        *("session_names", "sessions", "slo_rollups_1h", "slo_rollups_1m", "slo_samples"),
    }
)
"""Tables with so many rows that one statement over all rows would block other transactions."""

TAKING = frozenset(
    {
        *("drop_column", "drop_table", "drop_constraint", "rename_table", "alter_column"),
        *("create_unique_constraint", "create_check_constraint", "create_foreign_key", "create_primary_key", "create_exclude_constraint"),
    }
)
"""Operations that remove something that the last release uses, or that add a constraint which its writes may violate.
"""

_TAKING_SQL = re.compile(
    r"\b(DROP\s+(TABLE|COLUMN|CONSTRAINT|TYPE|VIEW|TRIGGER|FUNCTION)|RENAME\s|SET\s+NOT\s+NULL|ALTER\s+COLUMN\s+\w+\s+(SET\s+DATA\s+)?TYPE"
    r"|ADD\s+(CONSTRAINT|UNIQUE|CHECK|PRIMARY|FOREIGN)|CREATE\s+UNIQUE\s+INDEX|TRUNCATE)",
    re.IGNORECASE,
)
_CHANGING_SQL = re.compile(r"\b(?:UPDATE|DELETE\s+FROM|INSERT\s+INTO\s+\w+\b.*?\bFROM)\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE | re.DOTALL)
_INDEX_SQL = re.compile(r"\bCREATE\s+(?:UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY).*?\bON\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE | re.DOTALL)


def faults(source: str) -> list[str]:
    """Return the forbidden operations of the migration's `upgrade`, each with its remedy; an empty list if there are
    none.
    """
    tree = ast.parse(source)
    upgrade = list(_reached(tree))
    made = {name for call in _calls(upgrade, "create_table") for name in _names(call, upgrade, 0)}
    found = [
        f'{fault}: split it over releases, or say `contract = "why the last release needs none of it"`' for fault in _taking(upgrade, made)
    ]
    if _contract(tree):
        found = []
    for call in _calls(upgrade, "create_index"):
        tables = _names(call, upgrade, 1) - made
        found += [f"an index of {name} locks out its writers: build it by infra.online_changes" for name in sorted(tables & GROWING)]
    for text in _texts(upgrade):
        indexed = {name for name in _INDEX_SQL.findall(text) if name in GROWING - made}
        found += [f"an index of {name} locks out its writers: build it by infra.online_changes" for name in sorted(indexed)]
        changed = {name for name in _CHANGING_SQL.findall(text) if name in GROWING - made}
        found += [f"one statement over all of {name} locks its rows for long: use infra.online_changes" for name in sorted(changed)]
    return found


def _taking(upgrade: list[ast.AST], made: set[str]) -> Iterator[str]:
    for name in sorted(TAKING):
        for call in _calls(upgrade, name):
            place = 1 if name.startswith("create_") or name == "drop_constraint" else 0
            tables = _names(call, upgrade, place)
            if tables and tables <= made:
                continue
            if name == "alter_column" and _only_loosens(call):
                continue
            yield f"op.{name} of {', '.join(sorted(tables)) or 'a table'}"
    for call in _calls(upgrade, "create_index"):
        if any(word.arg == "unique" and isinstance(word.value, ast.Constant) and word.value.value for word in call.keywords):
            tables = _names(call, upgrade, 1)
            if not tables or not tables <= made:
                yield f"a unique index of {', '.join(sorted(tables)) or 'a table'}"
    for call in _calls(upgrade, "add_column"):
        column = call.args[1] if len(call.args) > 1 else None
        words = {word.arg: word.value for word in column.keywords} if isinstance(column, ast.Call) else {}
        null = words.get("nullable")
        if isinstance(null, ast.Constant) and null.value is False and not {"server_default"} & words.keys() and not _computed(column):
            yield f"a new column of {', '.join(sorted(_names(call, upgrade, 0))) or 'a table'} that is wanted in every row and has no server_default"
    for text in _texts(upgrade):
        for match in _TAKING_SQL.finditer(text):
            yield f"SQL that says {' '.join(match.group(0).split()).upper()}"


def _only_loosens(call: ast.Call) -> bool:
    """Return whether the call makes a column nullable or gives it a default, and changes nothing else."""
    for word in call.keywords:
        if word.arg == "nullable" and isinstance(word.value, ast.Constant) and word.value.value is True:
            continue
        if word.arg == "server_default" and not (isinstance(word.value, ast.Constant) and word.value.value is None):
            continue
        if word.arg is None or not word.arg.startswith("existing_"):
            return False
    return True


def _computed(column: ast.AST | None) -> bool:
    return column is not None and any(isinstance(one, ast.Attribute) and one.attr in {"Computed", "Identity"} for one in ast.walk(column))


def _contract(tree: ast.Module) -> bool:
    """Return whether the module says in `contract` why the last release no longer needs the parts that it removes."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [name.id for name in node.targets if isinstance(name, ast.Name)] == ["contract"]:
            return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) and len(node.value.value) > 10
    return False


def _reached(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every syntax node of `upgrade`, and of the module's functions and constants that `upgrade` reaches by
    name.
    """
    named: dict[str, ast.AST] = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            named.update({target.id: statement.value for target in targets if isinstance(target, ast.Name)})
    waiting, seen = ["upgrade"], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in named:
            continue
        seen.add(name)
        for node in ast.walk(named[name]):
            yield node
            if isinstance(node, ast.Name):
                waiting.append(node.id)


def _calls(nodes: list[ast.AST], name: str) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def _names(call: ast.Call, nodes: list[ast.AST], place: int) -> set[str]:
    """Return the tables that the call's argument at `place` can name: a literal, or each constant that a loop assigns
    to it.
    """
    if len(call.args) <= place:
        return set()
    argument = call.args[place]
    if isinstance(argument, ast.Constant):
        return {str(argument.value)}
    if isinstance(argument, ast.Name):
        loops = [
            node for node in nodes if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == argument.id
        ]
        return {
            item.value for loop in loops for item in ast.walk(loop.iter) if isinstance(item, ast.Constant) and isinstance(item.value, str)
        }
    return set()


def _texts(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the strings of these nodes. In an f-string, `_` stands for each value that is formatted in."""
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)
