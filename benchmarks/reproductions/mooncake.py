"""To be written."""

from benchmarks.reproductions.sections import Context, Section


def write(context: Context) -> str:
    """Run and describe."""
    raise NotImplementedError


SECTION = Section(name="mooncake", title="Mooncake: what to reject, and when", write=write)
