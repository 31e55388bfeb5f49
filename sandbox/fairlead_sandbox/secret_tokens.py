"""The sandbox's secrets: created once, stored in one private file, and passed to processes by environment variables."""

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead_sandbox.errors import SandboxError
from fairlead_sandbox.state_directory import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretTokens:
    """Tokens with which the control API starts.

    `admin` is for people; `operator` and `router` are for the processes with these names.
    """

    admin: str
    operator: str
    router: str

    @property
    def bootstrap(self) -> str:
        """The value of FAIRLEAD_BOOTSTRAP_TOKENS."""
        return f"admin:sandbox:{self.admin},system-operator:operator:{self.operator},system-router:router:{self.router}"


def load_or_create(path: Path) -> SecretTokens:
    """Read the secrets, or create and store them. Raises SandboxError when the file exists but cannot be used."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return SecretTokens(admin=str(document["admin"]), operator=str(document["operator"]), router=str(document["router"]))
    except FileNotFoundError:
        made = SecretTokens(admin=secrets.token_urlsafe(32), operator=secrets.token_urlsafe(32), router=secrets.token_urlsafe(32))
        keep(path, made)
        return made
    except (ValueError, KeyError, TypeError):
        raise SandboxError(f"{path}: not a token file; delete it to get new tokens") from None


def keep(path: Path, tokens: SecretTokens) -> None:
    """Write the secrets to the file that `load_or_create` reads."""
    write_private(path, json.dumps(asdict(tokens), indent=1) + "\n")
