"""Unusable input at any option, argument or setting of any program: one line that names it, and exit code 2."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_cli import main as command_line
from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.commands import name_of, run
from fairlead_process.environment import Variable, read, variables
from fairlead_process.kinds import Address, Addresses, Choice, Number, Switch, Whole
from fairlead_process.option_types import KindOption, NumberOption, TimeOption, WholeOption
from fairlead_process.starting import FaultSettings
from fairlead_router.settings import RouterSettings
from fairlead_sandbox.settings import SandboxSettings
from fairlead_serve.source_process import SourceSettings
from fairlead_testing.examples import examples
from fairlead_testing.running.command_line import Command
from fairlead_testing.running.programs import commands
from fairlead_web.frame.settings import AloneSettings

SECRET = "hunter2"
BAD_URLS = (
    "foo", "ftp://x", "http://", "http://h:abc", "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://[::1", f"http://me:{SECRET}@h:1",
    f"http://h/?a={SECRET}", f"http://me:{SECRET}/x@h", "http://h#x", "http://a b", "http://h\nx", "http://.", "http://" + "a" * 64, "http://-x",
)  # fmt: skip
NO_NUMBERS = ("abc", "nan", "NaN", "1e999", "-1e999", "1,5", "0x10", "one", "'")
WORKING = "the command began to work"


def bad_values(param: click.Parameter) -> Iterator[str]:
    """Yield texts that are not values of the parameter's type."""
    kind = param.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        yield from NO_NUMBERS
        if isinstance(kind, click.IntRange):
            yield "1.5"
        if kind.max is not None:
            yield str(kind.max + 1)
        if kind.min is not None and kind.min > -(2**63):
            yield str(kind.min - 1)
    elif isinstance(kind, click.Choice):
        yield "bogus"
    elif isinstance(kind, KindOption):
        yield from BAD_URLS
    elif isinstance(kind, TimeOption):
        yield from ("yesterday", "now-5x", "now+1h", "2026-13-01", "1999-01-01", "now-999999d", "5")


COMMANDS = list(commands())
OF_EACH = pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])


def valued(command: click.Command) -> Iterator[click.Parameter]:
    """Yield the options and arguments of a command that take a value."""
    yield from (one for one in command.params if not (isinstance(one, click.Option) and (one.is_flag or one.count)))


def refused(path: str, command: click.Command, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line with which a command line is refused before anything is done."""
    stub = click.Command(
        command.name, params=command.params, callback=lambda **_: pytest.fail(WORKING), context_settings=command.context_settings
    )
    assert run(stub, words, path) == 2, words
    heard = capsys.readouterr()
    assert (heard.out, heard.err.count("\n")) == ("", 1), heard.err
    assert heard.err.startswith(f"{path}: ") and "Traceback" not in heard.err
    return heard.err


def words_with(command: click.Command, param: click.Parameter, value: str) -> list[str]:
    """Return a command line with this value, after the words that must come before it."""
    if isinstance(param, click.Option):
        return [param.opts[0], value]
    before = [one for one in command.params[: command.params.index(param)] if isinstance(one, click.Argument)]
    return [*(str(one.type.choices[0]) if isinstance(one.type, click.Choice) else "1" for one in before), "--", value]


@OF_EACH
def test_a_value_that_cannot_be_used_is_named_with_what_to_write(
    path: str, command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    for param in valued(command):
        for value in bad_values(param):
            line = refused(path, command, words_with(command, param, value), capsys)
            assert f"{name_of(param)}: " in line and "; write " in line
            assert SECRET not in line
            assert SECRET in value or repr(value)[1:41].strip("'").partition("?")[0] in line


@OF_EACH
def test_an_empty_value_is_refused_and_not_taken_for_the_default(
    path: str, command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    for param in valued(command):
        for value in ("", " ", "\udcff"):
            line = refused(path, command, words_with(command, param, value), capsys)
            assert "; write " in line and (isinstance(param, click.Argument) or param.opts[0] in line)
        if isinstance(param, click.Option) and param.opts[0].startswith("--"):
            assert param.opts[0] in refused(path, command, [f"{param.opts[0]}="], capsys)


@OF_EACH
def test_no_number_is_of_a_type_that_takes_what_is_no_number(path: str, command: click.Command) -> None:
    """click's own number types accept NaN within every range, and infinity."""
    loose = (click.types.FloatParamType, click.types.IntParamType, click.FloatRange)
    strict = (NumberOption, WholeOption, click.IntRange)
    assert [one.name for one in valued(command) if isinstance(one.type, loose) and not isinstance(one.type, strict)] == []


@OF_EACH
def test_an_unknown_option_is_told_with_where_help_is(path: str, command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--no-such-option", "--no-such-option=1", "-Z"):
        assert f"see `{path} --help`" in (line := refused(path, command, [word], capsys))
        assert word.partition("=")[0] in line


SETTINGS = (RouterSettings, HostSettings, AloneSettings, OperatorSettings, SandboxSettings, SourceSettings, FaultSettings)
READ = [(settings, one) for settings in SETTINGS for one, _ in variables(settings)]


def bad_texts(one: Variable) -> list[str]:
    kind: Any = one.kind
    if isinstance(kind, Address | Addresses):
        return list(BAD_URLS)
    if isinstance(kind, Whole):
        return ["abc", "1.5", "-1", "1e3", "٣", str((kind.most if kind.most is not None else 10**30) + 1) if kind.most is not None else "x"]
    if isinstance(kind, Number):
        return ["abc", "nan", "inf", "-1e9", "1_0"]
    if isinstance(kind, Choice | Switch):
        return ["bogus", "yes", "2"]
    return []


def required(settings: type[Any]) -> dict[str, str]:
    usual = {"FAIRLEAD_DATABASE_URL": "postgresql://h/d"}
    addresses = (Address, Addresses)
    return {
        one.name: usual.get(one.name, "http://h" if isinstance(one.kind, addresses) else "x")
        for one, default in variables(settings)
        if default is MISSING
    }


@pytest.mark.parametrize(("settings", "one"), READ, ids=[f"{settings.__name__} {one.name}" for settings, one in READ])
def test_a_setting_that_cannot_be_used_is_named_with_what_to_write(settings: type[Any], one: Variable) -> None:
    for text in bad_texts(one):
        with pytest.raises(InvalidInput) as caught:
            read(settings, {**required(settings), one.name: text})
        line = str(caught.value)
        assert line.startswith(f"{one.name}: ") and "; " in line and "\n" not in line
        assert SECRET not in line
        assert not one.kind.secret or text not in line.split("; ")[0]


@pytest.mark.parametrize("kind", [Address("http://h"), Addresses("http://h")])
@given(text=st.text(max_size=40) | st.sampled_from(BAD_URLS) | st.from_regex(r"https?://[a-z:@\[\]./?#%0-9-]{1,20}", fullmatch=True))
@examples(200)
def test_an_address_that_is_taken_can_be_called(kind: Any, text: str) -> None:
    """httpx accepts every address that the parameter type accepts."""
    import httpx

    try:
        found = kind.parse(text)
    except ValueError:
        return
    for url in [found] if isinstance(found, str) else found:
        parsed = httpx.URL(url)
        assert parsed.host and not parsed.userinfo and (parsed.port or 80) < 65536


CHANGES = ("ttft=", "ttft= ", "ttft=''", "ttft=#5s", "ttft=---", "=5", "ttft", ".ttft=5s", "a..b=1", "ttft=[")


@pytest.mark.parametrize("field", CHANGES)
def test_an_empty_value_of_a_field_is_refused_and_null_says_the_default(command: Command, field: str) -> None:
    code, out, err = command("change", "set", "chat", "slo", field, "--yes", role="admin")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "; write " in err
    assert command("change", "set", "chat", "slo", "percentile=null", "--yes", "--reason", "x", role="admin")[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("pools", "show", "a/b/c"), "NAME: 'a/b/c' cannot be used; write a pool's name, or namespace/name"),
        (
            ("pools", "show", "shop/chat", "-n", "default"),
            "--namespace: 'default' cannot be used; leave it out: shop/chat names its namespace",
        ),
        (("decisions", "list", "-n", "shop"), "--namespace: 'shop' cannot be used; name a pool of that namespace too"),
        (("decisions", "list", "chat", "--pool", "code"), "--pool: 'code' cannot be used; leave it out"),
        (("change", "set", "chat", "slo", "bogus=1"), "spec.slo.bogus: 1 cannot be used; remove it"),
        (
            ("change", "set", "chat", "slo", "ttft=3s", "ttft=4s"),
            "FIELD=VALUE: 'ttft=4s' cannot be used; ttft is given twice; write it once",
        ),
        (("change", "set", "chat", "slo", "a.b=1", "a={c: 2}"), "FIELD=VALUE: 'a={c: 2}' cannot be used; a is given twice; write it once"),
        (
            ("change", "set", "chat", "slo", "ttft=0001-01-01T00:00:00+23:00"),
            "ttft: '0001-01-01T00:00:00+23:00' cannot be used; write the value as YAML "
            "(0001-01-01T00:00:00+23:00 is not a date that exists in UTC)",
        ),
        (("tokens", "create", "ci"), "--role: 'none' cannot be used; write one of viewer"),
        (("tokens", "create", "ci", "--in", "shop=king"), "--in: 'shop=king' cannot be used; write NAMESPACE=ROLE"),
        (("pools",), "`fairlead pools` does nothing by itself; write one of list, "),
        (("change", "scale", "chat", "5", "--yes", "--no-apply"), "give --yes or --no-apply, not both"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_what_only_the_command_can_judge_is_told_alike(command: Command, words: tuple[str, ...], told: str) -> None:
    if words == ("pools",):
        assert command_line.run(list(words)) == 2
        return
    code, out, err = command(*words, role="admin")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert told in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["router", "--port", "70000"], "--port"),
        (["api", "--wait-for-database", "nan"], "--wait-for-database"),
        (["serve", "--engine", "http://h:99999"], "--engine"),
        (["serve", "--engine", ""], "--engine"),
    ],
)
def test_an_option_of_a_process_that_cannot_be_used_is_told_in_one_line(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert named in err and "; " in err


PROCESSES = [
    (["fairlead_cli.main", "router"], {"FAIRLEAD_API_URL": f"http://me:{SECRET}@h:99999"}, "FAIRLEAD_API_URL"),
    (["fairlead_cli.main", "api"], {"FAIRLEAD_DATABASE_URL": f"mysql://me:{SECRET}@h/d"}, "FAIRLEAD_DATABASE_URL"),
    (["fairlead_cli.main", "operator"], {"KUBECONFIG": "/no/such/file"}, "KUBECONFIG"),
    (["fairlead_cli.main", "operator"], {"KUBECONFIG": __file__}, "KUBECONFIG"),
    (["fairlead_cli.main", "operator"], {}, "KUBECONFIG"),
    (["fairlead_cli.main", "serve", "--engine", f"http://me:{SECRET}@h:1"], {}, "--engine"),
    (["fairlead_cli.main", "engine"], {}, "--model"),
    (["fairlead_cli.main", "up", "--routers", "0"], {}, "--routers"),
    (["fairlead_cli.main", "pools", "list"], {"FAIRLEAD_URL": "http://h:99999"}, "FAIRLEAD_URL"),
    (["fairlead_cli.main", "pools", "list"], {"FAIRLEAD_DEBUG": "maybe"}, "FAIRLEAD_DEBUG"),
    (["fairlead_operator.main"], {"FAIRLEAD_API_URL": "foo"}, "FAIRLEAD_API_URL"),
    (["fairlead_router.main", "--admin-port", "x"], {}, "--admin-port"),
    (["fairlead_api.main"], {}, "FAIRLEAD_DATABASE_URL"),
    (["fairlead_web.main"], {"FAIRLEAD_API_URL": "http://["}, "FAIRLEAD_API_URL"),
    (["fairlead_host", "--port", ""], {}, "--port"),
]


@pytest.mark.parametrize(("words", "environment", "named"), PROCESSES, ids=[" ".join(words)[:60] for words, _, _ in PROCESSES])
def test_a_process_that_cannot_start_says_one_line_and_ends_with_code_2(
    words: list[str], environment: dict[str, str], named: str, tmp_path: Path
) -> None:
    usual = {"FAIRLEAD_API_TOKEN": "x", "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    if "FAIRLEAD_API_URL" not in environment:
        usual["FAIRLEAD_API_URL"] = "http://127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, env=usual | environment, cwd=tmp_path, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert named in done.stderr and SECRET not in done.stderr
    assert "; " in done.stderr


def test_a_kept_head_beyond_every_entrys_number_is_refused_in_a_line(command: Command) -> None:
    code, out, err = command("audit", "verify", "--head", f"{'9' * 5000}:abc", role="admin")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith("write ID:CHAIN, as `fairlead audit head` prints it\n")
