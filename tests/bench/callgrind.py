#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of a small fixed case with callgrind, and compares them with those that are recorded.

The case is a selective step (forward, backward) of two layers in f32 with one thread, run twice by `mdlm bench`; what
is counted is what runs inside mdlm_block_forward and mdlm_block_backward. valgrind knows AVX2 but no AVX-512, so this
is the AVX2 path, whatever the processor has. Counts differ from compiler to compiler and from oneDNN to oneDNN, so one
is recorded for each pair in instructions.json.

    tests/bench/callgrind.py [--build FOLDER] [--update]      (also: meson test -C build --benchmark instructions)

Exit status: 0 when the count is within 2 % of the recorded one or was recorded, 1 when it is not (explain the change in
the commit that makes it, and record the new count with --update), 77 when it cannot be counted here, 2 when something
failed.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RECORD = os.path.join(HERE, "instructions.json")
LIMIT = 0.02
CASE = ("--num-layers 2 --hidden-size 128 --num-attention-heads 4 --ffn-hidden-size 384 --swiglu --qk-layernorm "
        "--normalization RMSNorm --disable-bias-linear --attention-mask-type no_mask --seq-length 128 "
        "--micro-batch-size 1 --params-dtype f32 --device cpu --recompute-granularity selective "
        "--recompute-modules layernorm,mlp_act --no-baseline --threads 1 --repeats 1 --warmup 0 --alive all")


def stop(status, line):
    print(line, file=sys.stderr)
    sys.exit(status)


def output(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        stop(2, f"{command[0]} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def compiler_of(library):
    """The compiler that made the library says so in it."""
    if shutil.which("readelf") is None:
        return "unknown compiler"
    found = re.findall(r"\]\s+(.*(?:GCC|clang).*)", output(["readelf", "-p", ".comment", library]))
    return "; ".join(sorted(set(found))) or "unknown compiler"


def count(tool, valgrind, folder):
    """(instructions, the device as the program under valgrind saw it)"""
    counts = os.path.join(folder, "counts")
    said = json.loads(output([valgrind, "-q", "--tool=callgrind", f"--callgrind-out-file={counts}",
                              "--toggle-collect=mdlm_block_forward", "--toggle-collect=mdlm_block_backward", tool,
                              "bench", *CASE.split(), "--json"],
                             env={**os.environ, "OMP_NUM_THREADS": "1"}))
    with open(counts) as file:
        total = re.search(r"^totals: (\d+)$", file.read(), re.MULTILINE)
    if total is None or int(total.group(1)) == 0:
        stop(2, "callgrind counted nothing: are mdlm_block_forward and mdlm_block_backward symbols of the library?")
    return int(total.group(1)), said["device"]


def recorded():
    try:
        with open(RECORD) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("MDLM_BUILD_FOLDER", os.path.join(ROOT, "build")),
                        help="build folder (default: build)")
    parser.add_argument("--update", action="store_true", help="record the count")
    options = parser.parse_args()

    tool, library = os.path.join(options.build, "tools", "mdlm"), os.path.join(options.build, "src", "libmdlm.so")
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        stop(77, "skipped: valgrind is not installed (Debian: valgrind)")
    for path in [tool, library]:
        if not os.path.exists(path):
            stop(2, f"{path}: expected a build with tools, seen none")
    with open("/proc/cpuinfo") as file:
        if " avx2" not in file.read():
            stop(77, "skipped: this processor has no AVX2, which the recorded path needs")

    with tempfile.TemporaryDirectory() as folder:
        now, device = count(tool, valgrind, folder)
    if not re.search(r"\bavx2\b", device):
        stop(77, f"skipped: under valgrind the library does not take its AVX2 path, but: {device}")

    # Build and device together are what a count belongs to.
    matmuls = re.search(r"oneDNN \d[\d.]*", device)
    key = compiler_of(library) + ", " + (matmuls.group(0) if matmuls else "own matmuls")
    record = recorded()
    print(f"case      {CASE}\nbuild     {key}\ndevice    {device} (as valgrind shows it)\n"
          f"counted   {now:,} instructions")
    if key in record:
        change = now / record[key] - 1
        print(f"recorded  {record[key]:,}\nchange    {100 * change:+.2f} %")
    else:
        change = 0.0
        print("recorded  none for this build" + ("" if options.update else "; --update records it"))
    if options.update:
        record[key] = now
        with open(RECORD, "w") as file:
            json.dump(record, file, indent=1, sort_keys=True)
            file.write("\n")
        print(f"{RECORD}: recorded")
    elif abs(change) > LIMIT:
        print(f"more than {100 * LIMIT:.0f} %: explain it in the commit, and record it with --update")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
