"""Reads all settings from the environment. Settings are dataclasses whose fields name their variable:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class RouterSettings:
        max_retries: int = field(default=2, metadata=variable("FAIRLEAD_MAX_RETRIES", Whole("retries"), "…"))
        timeouts: Timeouts = field(default_factory=Timeouts, metadata=group(Timeouts))

`read(RouterSettings, os.environ)` gives the settings or raises InvalidInput. docs/settings.md is generated from the
same fields, so no variable is undocumented.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar

from fairlead.errors import InvalidInput
from fairlead_process.kinds import Kind

S = TypeVar("S")

PREFIX = "FAIRLEAD_"
NOT_SETTINGS = ("FAIRLEAD_SANDBOX_", "FAIRLEAD_TEST_")
"""Prefixes of variables for the sandbox and the tests. No process reads these variables as settings or reports them as
unknown.
"""


class MissingSetting(InvalidInput):
    """Raised if a variable without a default is not set, or empty."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(field, value, remedy)
        self.args = (f"{field}: is not set; {remedy}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable. `meaning` describes the setting, `consequence` the effect of another value.
    `default_shown` replaces a default that is only computed at the start.
    """

    name: str
    kind: Kind[Any]
    meaning: str
    consequence: str = ""
    default_shown: str = ""

    def parse(self, text: str) -> Any:
        """Return the value of `text`. Raises InvalidInput, which names the variable. The error never contains a part of
        a secret, or credentials or parameters of a URL.
        """
        try:
            return self.kind.parse(text)
        except InvalidInput as problem:
            raise InvalidInput(self.name, self._shown(problem.value), problem.remedy) from None
        except ValueError:
            raise InvalidInput(self.name, self._shown(text), f"write {self.kind.wanted}") from None

    def _shown(self, value: object) -> object:
        if self.kind.secret:
            return "…"
        return without_credentials(value) if isinstance(value, str) and self.kind.unit.startswith("URL") else value


def without_credentials(url: str) -> str:
    """Return one or several URLs in a form that people may see: without user, password and parameters."""
    before, mark, _ = url.rpartition("@")[2].partition("?")
    return f"{'…@' if '@' in url else ''}{before}{'?…' if mark else ''}"


def variable(name: str, kind: Kind[Any], meaning: str, consequence: str = "", *, default_shown: str = "") -> Mapping[str, Any]:
    """Return the metadata of a dataclass field that is read from an environment variable. The field's default is the
    setting's default.
    """
    return {"variable": Variable(name=name, kind=kind, meaning=meaning, consequence=consequence, default_shown=default_shown)}


def group(settings: type[Any]) -> Mapping[str, Any]:
    """Return the metadata of a dataclass field whose value is itself a dataclass of settings."""
    return {"group": settings}


def read(settings: type[S], environment: Mapping[str, str]) -> S:
    """Return the settings that the environment gives; an empty variable counts as not set.

    Raises InvalidInput for the first variable that cannot be used.
    """
    values: dict[str, Any] = {}
    for one in fields(settings):  # type: ignore[arg-type]  # a type variable cannot say that it is a dataclass
        if (inner := one.metadata.get("group")) is not None:
            values[one.name] = read(inner, environment)
        elif (found := one.metadata.get("variable")) is not None:
            text = environment.get(found.name, "").strip()
            if text:
                values[one.name] = found.parse(text)
            elif _is_required(one):
                raise MissingSetting(found.name, None, f"write {found.kind.wanted}")
    return settings(**values)


def variables(settings: type[Any]) -> Iterator[tuple[Variable, Any]]:
    """Yield each variable of the settings in order of declaration, with its default. dataclasses.MISSING means that the
    variable must be set.
    """
    for one in fields(settings):
        if (inner := one.metadata.get("group")) is not None:
            yield from variables(inner)
        elif (found := one.metadata.get("variable")) is not None:
            yield found, one.default if one.default_factory is MISSING else one.default_factory()


def names(*settings: type[Any]) -> frozenset[str]:
    """Return the names of the variables from which these settings are read."""
    return frozenset(found.name for one in settings for found, _ in variables(one))


def unread(environment: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    """Return Fairlead's variables that are set but not among `known`, each with the most similar known name (empty if
    none is similar).
    """
    strange = sorted(name for name in environment if name.startswith(PREFIX) and not name.startswith(NOT_SETTINGS) and name not in known)
    return {name: next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)), "") for name in strange}


def _is_required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING
