"""Mistakes with `fairlead simulate`, `traces` and `replay`: one line that names the field, the value and the remedy.

The exit code is 2.
"""

from itertools import islice
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from fairlead_process.commands import run
from fairlead_simulator.replay.command import replay
from fairlead_simulator.simulate_command import simulate
from fairlead_simulator.traces.rows import write_trace
from fairlead_simulator.traces_command import traces
from fairlead_simulator.workloads.kinds import KINDS

REQUESTS = 40
GOOD = '{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [0]}'


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files of every kind, most of them faulty."""
    made = tmp_path_factory.mktemp("inputs")
    with (made / "good.jsonl").open("w") as file:
        write_trace(islice(KINDS["conversation"].rows(None, 2000, 3), REQUESTS), file)
    (made / "parting.json").write_text('[{"kind": "part-routers", "at": 1, "for_seconds": 2}]')
    (made / "folder").mkdir()
    (made / "empty").touch()
    (made / "binary").write_bytes(b"\x00\xff\xfe\x80\n\x01")
    (made / "long.csv").write_text("timestamp,input_length,output_length\n1,1e9,1\n")
    (made / "half.csv").write_text("timestamp,input_length,output_length\n1,512,1\n2,512.5,1\n")
    (made / "header.csv").write_text("timestamp,input_length,output_length\n")
    return made


def complaint(folder: Path, command: str, *arguments: str) -> str:
    """Return the one line with which a command ends.

    Relative names are in `folder`, and the command must print nothing else.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        program = {"simulate": simulate, "replay": replay}.get(command)
        result = CliRunner().invoke(program or traces, list(arguments) if program else [command, *arguments])
    assert result.exit_code == (1 if "cannot be written" in result.stderr else 2)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.stdout == ""
    usage, _, line = result.stderr.rpartition("Error: ")
    assert line.count("\n") == 1
    assert usage == "" or (result.exit_code == 2 and usage.startswith("Usage: "))
    return line.rstrip()


@pytest.mark.parametrize("command", ["simulate --trace", "describe", "convert"])
@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("missing", "missing: cannot be read: No such file or directory"),
        ("folder", "folder: cannot be read: Is a directory"),
        ("empty", "empty: holds no rows; expected one request per line"),
        ("binary", "binary: holds zero bytes, so it is not text in UTF-8; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_trace_is_told_by_every_command(folder: Path, command: str, file: str, told: str) -> None:
    assert complaint(folder, *command.split(), file).startswith(told)


@pytest.mark.parametrize("command", ["simulate --trace", "describe", "convert"])
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("nonsense", "2: is not JSON"),
        ("[" * 2000, "2: is not JSON"),
        ('"text"', "2: must be a JSON object, not str"),
        (GOOD.replace('"output_length": 1, ', ""), "2: output_length: is missing; a row needs timestamp, input_length, output_length and"),
        (GOOD.replace("512", "-512"), "2: input_length: -512 must be a whole number of tokens, from 1 to 10,000,000"),
        (
            GOOD.replace('"output_length": 1', '"output_length": 10000001'),
            "2: output_length: 10000001 must be a whole number of tokens, from 0",
        ),
        (GOOD.replace('"output_length": 1', '"output_length": "1"'), "2: output_length: '1' must be a whole number of tokens"),
        (GOOD.replace("[0]", "[0, 1]"), "2: hash_ids: holds 2 ids; input_length 512 needs 1 (one per 512 tokens)"),
        (GOOD.replace("[0]", '["a"]'), "2: hash_ids: ['a'] must be a list of whole numbers"),
        (GOOD.replace("[0]", '"' + "x" * 5000 + '"'), "2: hash_ids: 'xxxxxxxx"),
        (GOOD.replace('"timestamp": 1', '"timestamp": 0'), "2: timestamp: 0 is before the previous row's 1; sort the rows by time"),
        (GOOD.replace('"timestamp": 1', '"timestamp": 1e308'), "2: timestamp: 1e+308 must be a number of milliseconds, from 0 to 1e+15"),
        (GOOD.replace('"timestamp": 1', '"timestamp": NaN'), "2: is not JSON"),
        (GOOD.replace("}", ', "delay": -2}'), "2: delay: -2 must be a number of milliseconds, from 0"),
        (GOOD.replace("}", ', "session_id": {}}'), "2: session_id: {} must be text or a whole number"),
    ],
)
def test_a_bad_row_is_told_by_file_line_and_field(folder: Path, tmp_path: Path, command: str, row: str, told: str) -> None:
    (tmp_path / "row.jsonl").write_text(f"{GOOD}\n{row}\n")
    line = complaint(tmp_path, *command.split(), "row.jsonl")
    assert line.startswith(f"row.jsonl:{told}")
    assert len(line) < 200


KNOWN = "known: cache-affinity, "


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--instances 0", "'--instances': '0' cannot be used; write a whole number from 1 to 10,000"),
        ("--instances abc", "'--instances': 'abc' cannot be used; write a whole number from 1"),
        ("--instances 2.5", "'--instances': '2.5' cannot be used; write a whole number from 1"),
        ("--prefill-instances 2", "give both --prefill-instances and --decode-instances, or neither"),
        (
            "--instances 8 --prefill-instances 2 --decode-instances 2",
            "give --instances, or --prefill-instances and --decode-instances, not all of them",
        ),
        ("--warmup-rate 2", "--warmup-rate is the rate of the first requests; give their number with --warmup"),
        ("--prefill-instances 2 --decode-instances 0", "'--decode-instances': '0' cannot be used; write a whole number from 1"),
        ("--weights 1,0", "--weights: '0' cannot be used; write numbers from 0.01 to 100, as 1,1,0.5"),
        ("--speeds 1,0", "--speeds: '0' cannot be used; write numbers from 0.01 to 100, as 1,1,0.5"),
        ("--speeds fast", "--speeds: 'fast' cannot be used; write numbers from 0.01 to 100, as 1,1,0.5"),
        ("--rates 0", "--rates: '0' cannot be used; write numbers above 0"),
        ("--rates -1", "--rates: '-1' cannot be used; write numbers above 0"),
        ("--rates abc", "--rates: 'abc' cannot be used; write numbers above 0"),
        ("--rates 1x,,2x", "--rates: '' cannot be used; write numbers above 0"),
        ("--rates 2,2.0", "--rates: '2' cannot be used; it is named twice; write it once"),
        ("--rates 1e300", "--rates: '1e300' cannot be used; write numbers above 0, such as 4 (requests per second, at most 1,000,000)"),
        ("--rates 1e-9", "--rates: '1e-09' cannot be used; 40 requests would take more than 30 days; write at least 1.6e-05 a second"),
        ("--warmup 10 --warmup-rate 1e-9", "--warmup-rate: '1e-09' cannot be used; 10 requests would take more than 30 days"),
        ("--warmup 40", "--warmup 40 leaves no request of 40 to measure; write at most 39"),
        ("--warmup 30 --requests 30", "--warmup 30 leaves no request of 30 to measure; write at most 29"),
        ("--warmup -1", "'--warmup': '-1' cannot be used; write a whole number from 0"),
        ("--warmup-rate 0", "'--warmup-rate': '0' cannot be used; write a number above 0"),
        ("--requests 0", "'--requests': '0' cannot be used; write a whole number from 1"),
        ("--seeds 0", "'--seeds': '0' cannot be used; write a whole number from 1 to 1,000"),
        ("--jobs 0", "'--jobs': '0' cannot be used; write a whole number from 1"),
        ("--slo-ttft 0", "'--slo-ttft': '0' cannot be used; write a number above 0"),
        ("--slo-ttft nan", "'--slo-ttft': 'nan' cannot be used; write a number above 0"),
        ("--slo-tpot inf", "'--slo-tpot': 'inf' cannot be used; write a number above 0"),
        ("--slo-tpot fast", "'--slo-tpot': 'fast' cannot be used; write a number above 0"),
        ("--token-noise 3", "'--token-noise': '3' cannot be used; write a number from 0 to 2"),
        ("--delay -1", "'--delay': '-1' cannot be used; write a number from 0 to 3,600"),
        ("--delay nan", "'--delay': 'nan' cannot be used; write a number from 0 to 3,600"),
        ("--prefills-in-flight -1", "'--prefills-in-flight': '-1' cannot be used; write a whole number from 0"),
        ("--max-input 1", "good.jsonl: no request is shorter than 1 tokens; raise --max-input"),
        ("--max-input -1", "'--max-input': '-1' cannot be used; write a whole number from 0"),
        ("--mode fast", "'--mode': 'fast' is not one of 'prefill_priority', 'chunked'"),
        ("--eviction fifo", "'--eviction': 'fifo' is not one of 'lru', 'lfu', 'length-aware'"),
        ("--eviction lfu --preset vllm-h100-8b", "--eviction: 'vllm-h100-8b' has no prefix cache in host memory; use one of dualmap-910b4"),
        ("--spread wide", "'--spread': 'wide' is not one of 'random', 'even', 'none'"),
        ("--preset abacus", "preset 'abacus' is unknown; known: dualmap-910b3-qwen14b, "),
        ("--early-rejection maybe", "early rejection mode 'maybe' is unknown; known: after-prefill, disabled, load, predicted"),
        ("--early-rejection load,load", "--early-rejection: 'load' cannot be used; it is named twice"),
        ("--closed-loop", "request 1 has no session_id; --closed-loop needs it (fairlead traces generate --kind agentic has it)"),
        ("--policies fastest", f"policy 'fastest' is unknown; {KNOWN}"),
        ("--policies :queue_limit=1", f"policy '' is unknown; {KNOWN}"),
        ("--policies ,", "--policies: ',' cannot be used; write at least one policy"),
        ("--policies ear,ear", "--policies: 'ear' cannot be used; it is named twice; write it once"),
        (
            "--policies static-pd",
            "--policies: 'static-pd' cannot be used; it needs instances of role prefill and decode; give --prefill-inst",
        ),
        ("--policies dualmap:x=1", "--policies: dualmap: x: '1' cannot be used; remove it; the fields of policy dualmap are "),
        ("--policies dualmap:slo_fraction", "--policies: 'slo_fraction' cannot be used; write parameters as name:key=value;key=value"),
        ("--policies dualmap:=1", "--policies: '=1' cannot be used; write parameters as name:key=value;key=value"),
        ("--policies dualmap:slo_fraction=0", "--policies: dualmap: slo_fraction: 0.0 cannot be used; write a number from 0.01 to 100"),
        ("--policies dualmap:slo_fraction=nan", "--policies: dualmap: slo_fraction: nan cannot be used; write a number from 0.01 to 100"),
        (
            "--policies dualmap:max_examined=1.5",
            "--policies: dualmap: max_examined: 1.5 cannot be used; write a whole number from 1 to 10000",
        ),
        ("--policies dualmap:rebalance=1", "--policies: dualmap: rebalance: '1' cannot be used; write true or false"),
        ("--policies ear:queue_limit=1;queue_limit=2", "'queue_limit=2' cannot be used; queue_limit is given twice; write one value"),
        ("--json missing/rows.json", "missing/rows.json: cannot be written: No such directory; make missing first"),
        ("--json folder", "folder: cannot be written: Is a directory; name a file"),
        ("--plots empty", "'--plots': Directory 'empty' is a file"),
        ("--plots empty/plots", "empty/plots: cannot be written: Not a directory; name a folder that can be created"),
        ("--kv-event-delay 1", "--kv-event-delay needs --kv-events"),
        ("--no-kv-event-replay", "--no-kv-event-replay needs --kv-events"),
        ("--kv-events --kv-event-loss 2", "'--kv-event-loss': '2' cannot be used; write a number from 0 to 1"),
        ("--kv-events --eviction lfu", "--kv-events is for caches that evict least recently used first; leave out --eviction lfu"),
        ("--clients session", "--clients spreads requests over routers; say how many with --routers"),
        ("--asking-delay 0.001", "--asking-delay lets one of several routers decide; say how many with --routers"),
        ("--routers 2 --asking-delay 61", "'--asking-delay': '61' cannot be used; write a number from 0 to 60"),
        (
            "--routers 2 --timeline parting.json",
            "--timeline: part-routers needs routers of which one decides; give --routers and --asking-delay",
        ),
        ("--routers 0", "'--routers': '0' cannot be used; write a whole number from 1 to 64"),
        ("--timeline missing", "missing: cannot be read: No such file or directory"),
        ("--timeline folder", "folder: cannot be read: Is a directory"),
        ("--timeline binary", "binary: is not JSON: str is not valid UTF-8"),
        ("--timeline empty", "empty: is not JSON: Input is a zero-length, empty document"),
    ],
)
def test_what_cannot_be_simulated_is_told_before_anything_runs(folder: Path, arguments: str, told: str) -> None:
    assert told in complaint(folder, "simulate", "--trace", "good.jsonl", *arguments.split())


def test_a_simulation_needs_a_trace(folder: Path) -> None:
    assert complaint(folder, "simulate") == "Missing option '--trace'."


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([{"kind": "override", "at": 3, "parameters": {"cooldown_seconds": 1}}], "override at 3 s: parameters.cooldown_seconds: 1 cannot"),
        ([{"kind": "override", "at": 3, "policy": "static-pd"}], "override at 3 s: policy: 'static-pd' cannot be used; it needs instances"),
        ([{"kind": "fail", "at": 0, "instance": 8}], "fail at 0 s: instance: 8 cannot be used; write a number from 0 to 7"),
        (
            [{"kind": "fail", "at": 9, "instance": 7}, {"kind": "scale", "at": 8, "instances": 7}],
            "fail at 9 s: instance: 7 cannot be used; write a number from 0 to 6",
        ),
    ],
)
def test_a_schedule_that_a_compared_policy_could_not_follow_is_told_before_anything_runs(
    folder: Path, tmp_path: Path, events: list[object], told: str
) -> None:
    (tmp_path / "timeline.json").write_bytes(orjson.dumps(events))
    arguments = ("--trace", "good.jsonl", "--policies", "ear,random", "--timeline", str(tmp_path / "timeline.json"))
    assert told in complaint(folder, "simulate", *arguments)


def test_an_error_in_another_process_is_the_same_line(folder: Path, tmp_path: Path) -> None:
    """The instances of a pool that scales itself are only known when the event is due."""
    (tmp_path / "timeline.json").write_bytes(orjson.dumps([{"kind": "fail", "at": 0, "instance": 9}]))
    (tmp_path / "scaling.json").write_bytes(orjson.dumps({"scaling": {"mode": "SLO"}}))
    arguments = [
        "--trace",
        str(folder / "good.jsonl"),
        "--policies",
        "ear,random",
        "--rates",
        "4",
        "--timeline",
        str(tmp_path / "timeline.json"),
        "--scaling",
        str(tmp_path / "scaling.json"),
    ]
    last = [CliRunner().invoke(simulate, [*arguments, "--jobs", jobs]).stderr.splitlines()[-1] for jobs in ("1", "2")]
    assert last == ["Error: --timeline: fail at 0 s: instance: 9 cannot be used; write a number from 0 to 7"] * 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("generate --kind dreams", "'--kind': 'dreams' is not one of 'conversation', 'tool-agent', 'agentic', 'prefix-groups'"),
        ("generate --requests 0", "'--requests': '0' cannot be used; write a whole number from 1"),
        ("generate --requests 1e99", "'--requests': '1e99' cannot be used; write a whole number from 1"),
        ("generate --requests " + "9" * 30, "cannot be used; write a whole number from 1"),
        ("generate --rate 0", "'--rate': '0' cannot be used; write a number above 0"),
        ("generate --rate nan", "'--rate': 'nan' cannot be used; write a number above 0"),
        ("generate --rate 1e-300", "--rate: 1e-300 cannot be used; 1,000 requests would not end; write at least 1e-09"),
        ("generate --median-input 0", "'--median-input': '0' cannot be used; write a whole number from 1"),
        ("generate --median-input inf", "'--median-input': 'inf' cannot be used; write a whole number from 1"),
        ("generate --seed x", "'--seed': 'x' cannot be used; write a whole number"),
        ("generate --out folder", "folder: cannot be written: Is a directory"),
        ("generate --out missing/made", "missing/made: cannot be written: No such file or directory"),
        ("describe", "Missing argument 'FILE'"),
        ("describe good.jsonl --requests 0", "'--requests': '0' cannot be used; write a whole number from 1"),
        ("convert good.jsonl --rate inf", "'--rate': 'inf' cannot be used; write a number above 0"),
        ("convert good.jsonl --speed 0", "'--speed': '0' cannot be used; write a number above 0"),
        ("convert good.jsonl --rate 1 --speed 2", "give --rate or --speed, not both"),
        ("convert good.jsonl --max-input 1", "good.jsonl: no request is shorter than 1 tokens; raise --max-input"),
        ("convert good.jsonl --to burstgpt", "'--to': 'burstgpt' is not one of 'jsonl', 'csv'"),
        ("convert good.jsonl --out missing/made", "missing/made: cannot be written: No such file or directory"),
        ("convert good.jsonl --from csv", "good.jsonl:1: timestamp: is not a column; the first line must name timestamp, input_length"),
        ("convert good.jsonl --from burstgpt", "good.jsonl:1: Timestamp: is not a column; the first line must name Timestamp, Request"),
        ("convert binary --from csv", "binary: holds zero bytes, so it is not text in UTF-8; save it as UTF-8"),
        ("convert folder --from csv", "folder: cannot be read: Is a directory"),
        ("convert empty --from csv", "empty: holds no rows; expected one request per line"),
        ("convert header.csv --from csv", "header.csv: holds no rows; expected one request per line"),
        ("convert long.csv --from csv", "long.csv:2: input_length: 1000000000 must be a whole number of tokens, from 1 to 10,000,000"),
        ("convert good.jsonl --block-size 0", "'--block-size': '0' cannot be used; write a whole number from 1 to 65,536"),
        (
            "convert good.jsonl --from mooncake",
            "'--from': 'mooncake' is not one of 'jsonl', 'csv', 'azure', 'burstgpt', 'alibaba', 'aiperf', ",
        ),
        ("convert half.csv --from csv", "half.csv:3: input_length: 512.5 must be a whole number of tokens"),
    ],
)
def test_what_cannot_be_made_or_converted_is_told(folder: Path, arguments: str, told: str) -> None:
    assert told in complaint(folder, *arguments.split())


REPLAY = ("replay", "--generate", "conversation", "--url", "http://127.0.0.1:1", "--model", "m")


@pytest.mark.parametrize("option", ["--speed", "--rate", "--median-input", "--slo-ttft", "--time-scale", "--cancel-share", "--timeout"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_what_is_no_number_is_told_before_anything_is_sent(folder: Path, option: str, value: str) -> None:
    told = complaint(folder, *REPLAY, option, value)
    assert told.startswith(f"Invalid value for '{option}': '{value}' cannot be used; write a ")


@pytest.mark.parametrize("option", ["--json", "--rows"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_sent(folder: Path, option: str) -> None:
    assert complaint(folder, *REPLAY, option, "nowhere/x") == "nowhere/x: cannot be written: No such file or directory"


@pytest.mark.parametrize("option", ["--json", "--rows"])
def test_a_replay_that_never_begins_leaves_an_older_result_as_it_was(folder: Path, option: str) -> None:
    (folder / "older").write_text("earlier figures")
    assert "is the router running" in CliRunner().invoke(replay, [*REPLAY[1:], option, str(folder / "older")]).stderr
    assert (folder / "older").read_text() == "earlier figures"


def test_a_pool_of_a_replay_is_named_as_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(replay, [*REPLAY[1:], "--pool", "a/b/c"], "replay") == 2
    assert capsys.readouterr().err == "replay: --pool: 'a/b/c' cannot be used; write a pool's name, or namespace/name\n"
