"""To be written."""

from benchmarks.reproductions.sections import Context, Section


def write(context: Context) -> str:
    """Run and describe."""
    raise NotImplementedError


SECTION = Section(name="ear", title="EAR: affinity with migration on agent sessions", write=write)
