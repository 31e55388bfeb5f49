"""Run reproductions and write their sections of docs/benchmarks.md.

.venv/bin/python -m reproductions [--conversation TRACE] [--seeds N] [--jobs N] [--docs FOLDER] [SECTION ...]

The section `default_policy_grid` can be run in parts: `--only "vllm-h100-8b" --only "8 instances" --rows grid.jsonl`.
So can `unseen_traffic`, also on traces of your own: `--trace chat=FILE --policies fairlead,ear --rates 0.75,1`.
"""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.command_line import a_file, above_zero, count

from fairlead_simulator.errors import SimulatorError
from reproductions.catalogue import SECTIONS
from reproductions.page import update
from reproductions.sections import SEEDS, Context


def _kind_and_file(text: str) -> tuple[str, Path]:
    """Parse `chat=FILE` and return kind and path. Raises argparse.ArgumentTypeError if the file does not exist."""
    kind, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a KIND=FILE, as chat=conversations.csv")
    return kind, a_file(path)


def main() -> None:
    """Parse the command line, run each section, and update the page after each."""
    names = [section.name for section in SECTIONS]
    parser = argparse.ArgumentParser(prog="python -m reproductions", description="Run reproductions; write docs/benchmarks.md.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"all without it: {', '.join(names)}")
    parser.add_argument("--conversation", type=a_file, help="Mooncake's conversation trace; generated conversations without it")
    parser.add_argument("--seeds", type=count, default=SEEDS)
    parser.add_argument("--jobs", type=count, default=1, help="processes")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the page")
    parser.add_argument("--first-seed", type=int, default=0, help="of default_policy_grid")
    parser.add_argument("--whole", action="store_true", help="all of default_policy_grid (hours), not the settings that span it")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="settings of default_policy_grid with this in their name"
    )
    parser.add_argument("--rows", type=Path, help="JSONL of default_policy_grid's rows: those there are not run again, new ones are added")
    parser.add_argument(
        "--trace",
        type=_kind_and_file,
        action="append",
        default=[],
        metavar="KIND=FILE",
        help="a trace for unseen_traffic and fetching; generated without",
    )
    parser.add_argument("--policies", default="", help="those of unseen_traffic, as fairlead,ear; its own without it")
    parser.add_argument("--rates", default="", help="those of unseen_traffic, as multiples of the saturation: 0.75,1")
    parser.add_argument("--quick", action="store_true", help="smallest runs; the figures mean nothing")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in names]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(names)}")
    if options.quick and options.rows is not None:
        parser.error("--quick with --rows would put figures that mean nothing beside those that do")

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    context = Context(
        docs=options.docs,
        conversation=options.conversation,
        seeds=options.seeds,
        jobs=options.jobs,
        quick=options.quick,
        say=say,
        first_seed=options.first_seed,
        whole=options.whole,
        only=tuple(options.only),
        rows=options.rows,
        traces=dict(options.trace),
        policies=tuple(part for part in options.policies.split(",") if part),
        rates=tuple(above_zero(part) for part in options.rates.split(",") if part),
    )
    for section in SECTIONS:
        if not options.sections or section.name in options.sections:
            started = time.monotonic()
            try:
                text = section.write(context)
            except SimulatorError as error:
                parser.error(str(error))
            trace = None if options.conversation is None else options.conversation.name
            update(options.docs / "benchmarks.md", SECTIONS, {section.name: text}, options.seeds, trace)
            say(f"{section.name}: written to {options.docs / 'benchmarks.md'} after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
