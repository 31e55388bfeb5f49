"""Compiles each template once for all sites of a process, because compiling takes most of a test site's start."""

from functools import partial
from types import CodeType
from unittest.mock import patch

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket

from fairlead_web.frame import rendering


class CompiledOnce(BytecodeCache):
    """The compiled templates by their key and the checksum of their text."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._code[bucket.key, bucket.checksum] = bucket.code


_OF_THIS_PROCESS = CompiledOnce()


def compile_templates_once() -> None:
    """Make every later site of this process reuse the templates that an earlier site compiled."""
    patch.object(rendering, "Environment", partial(Environment, bytecode_cache=_OF_THIS_PROCESS)).start()
