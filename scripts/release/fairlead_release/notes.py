"""The notes of a release, from CHANGELOG.md and docs/upgrading.md."""

import re


def notes(changelog: str, version: str, tagged: bool) -> str:
    """Return the notes of `version`. If it is not `tagged`, the section of unreleased changes is preferred.

    Raises ValueError with the name of a section that is missing or empty.
    """
    for wanted in (version,) if tagged else ("Unreleased", version):
        if section := re.search(rf"^## \[{re.escape(wanted)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL):
            if text := section[1].strip():
                return f"{text}\n"
            raise ValueError(f"CHANGELOG.md: the section [{wanted}] is empty: say what changes for those who upgrade")
    raise ValueError(f"CHANGELOG.md has no section [{version}]: rename [Unreleased] to [{version}] with the date")


def must_agree(tag: str, versions: dict[str, str]) -> None:
    """Raise ValueError if the tag or a file has a different version; `versions` maps a file's name to its version."""
    wanted = tag.removeprefix("v") if tag else next(iter(versions.values()))
    for name, version in versions.items():
        if version != wanted:
            raise ValueError(
                f"{name} has version {version}, but {f'the tag is {tag}' if tag else f'another file has {wanted}'}: make them one"
            )
