"""To be written."""

from benchmarks.reproductions.sections import Context, Section


def write(context: Context) -> str:
    """Run and describe."""
    raise NotImplementedError


SECTION = Section(name="heimdall", title="Heimdall: random against precise prefix routing", write=write)
