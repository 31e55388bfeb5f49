"""The notes of a release, from CHANGELOG.md and docs/upgrading.md."""

import re


def notes(changelog: str, version: str, tagged: bool) -> str:
    """The section of `version`; without a tag what is not released yet will do.

    Raises ValueError that names the section which is missing or empty.
    """
    for wanted in (version,) if tagged else ("Unreleased", version):
        if section := re.search(rf"^## \[{re.escape(wanted)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL):
            if text := section[1].strip():
                return f"{text}\n"
            raise ValueError(f"CHANGELOG.md: the section [{wanted}] is empty: say what changes for those who upgrade")
    raise ValueError(f"CHANGELOG.md has no section [{version}]: rename [Unreleased] to [{version}] with the date")


def must_agree(tag: str, versions: dict[str, str]) -> None:
    """Raises ValueError where the tag or a file (name → its version) has another version."""
    wanted = tag.removeprefix("v") if tag else next(iter(versions.values()))
    for name, version in versions.items():
        if version != wanted:
            raise ValueError(
                f"{name} has version {version}, but {f'the tag is {tag}' if tag else f'another file has {wanted}'}: make them one"
            )
