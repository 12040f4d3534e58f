#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suite `aarch64`: the library built for AArch64 (tests/run.sh does that), under qemu: what it says of itself, the
golden cases, the CPU kernels' unit cases.

    python3 tests/aarch64/run.py [--test-case='golden*']
"""
import os
import platform
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "abi"))
from harness import BUILD, ROOT, Skip, case, main, run  # noqa: E402

PACKAGES, MADE = os.path.join(BUILD, "arm64-packages"), os.path.join(BUILD, "aarch64")
GOLDEN = os.path.join(ROOT, "tests", "golden", "cases")
THREADS = 3  # more than half of the cores of most machines, and a number that divides no shape


def emulated(program, *arguments):
    """Output of a program of the cross build; skips where there can be none."""
    if platform.machine() == "aarch64":
        raise Skip("because this machine is one, and the other suites are that test")
    if shutil.which("aarch64-linux-gnu-g++") is None:
        raise Skip("because there is no cross compiler (aarch64-linux-gnu-g++)")
    if not os.path.exists(os.path.join(PACKAGES, "complete")):
        raise Skip("because Highway for AArch64 is not there (tests/run.sh fetches it)")
    emulator = shutil.which("qemu-aarch64-static")
    if emulator is None:
        raise Skip("because there is no emulator (qemu-aarch64-static)")
    return run([emulator, "-L", "/usr/aarch64-linux-gnu", "-E", "MDLM_TEST_EMULATED=1", "-E",
                "LD_LIBRARY_PATH=" + os.path.join(PACKAGES, "usr", "lib", "aarch64-linux-gnu"),
                os.path.join(MADE, program), *arguments])


@case("mdlm info names NEON")
def _(_folder):
    out = emulated("tools/mdlm", "info", "--threads", str(THREADS))
    assert re.search(r"^device +cpu: 3 threads, neon \(kernels for NEON\); matmuls in f32: own, bf16: own$", out,
                     re.MULTILINE), out


for dtype in ("f32", "bf16"):
    for name in sorted(os.listdir(GOLDEN)):
        @case(f"golden: {name} in {dtype}, the same bits under every recompute setting")
        def _(_folder, name=name, dtype=dtype):
            out = emulated("tools/mdlm", "check", "--sweep", "--dtype", dtype, "--threads", str(THREADS),
                           os.path.join(GOLDEN, name))
            seen = re.fullmatch(rf"ok    \S+  cpu {dtype}  output .*  (\d+) settings \(worst: .*\), bits the same\n",
                                out)
            assert seen and int(seen.group(1)) >= 13, out


@case("golden: two ranks with sequence parallelism among their settings")
def _(_folder):
    out = emulated("tools/mdlm", "check", "--sweep", "--tensor-model-parallel-size", "2", "--threads", "1",
                   os.path.join(GOLDEN, "dlm"))
    seen = re.fullmatch(r"ok    \S+  cpu f32  t 2  output .*  (\d+) settings \(worst: .*\), bits the same\n", out)
    assert seen and int(seen.group(1)) >= 30, out


@case("the unit cases of the CPU device's kernels")
def _(_folder):
    out = emulated("tests/unit/mdlm-test-unit-cpu")
    seen = re.search(r"^mdlm-test: (\d+) passed, 0 failed, 0 skipped$", out, re.MULTILINE)
    assert seen and int(seen.group(1)) >= 19, out


sys.exit(main())
