#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs libFuzzer's targets from their corpus, one after the other or several at a time, each for some time.

What it finds it keeps, and prints the command that repeats it. Inputs that reach further are kept in the build folder
for the next run; what was found is added to tests/fuzz/corpus by hand, minimised, and stays there.

    tests/fuzz/run.py --minutes 60 --jobs 2             # every target for an hour
    tests/fuzz/run.py --minutes 10 --target chain       # one of them
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Targets, and how long their inputs may grow: bytes.
LONGEST = {"config": 2048, "flags": 1024, "chain": 3000, "plan": 3000, "table": 1500, "npy": 512, "golden": 1024,
           "calls": 400}


def run(program, target, seconds, kept):
    """Returns (findings, executions, the log)."""
    grown, found = os.path.join(kept, "corpus", target), os.path.join(kept, "found")
    os.makedirs(grown, exist_ok=True)
    os.makedirs(found, exist_ok=True)
    command = [program, target, f"-max_total_time={seconds}", f"-max_len={LONGEST[target]}", "-timeout=60",
               "-rss_limit_mb=3072", "-print_final_stats=1", f"-artifact_prefix={found}/{target}-", grown,
               os.path.join(HERE, "corpus", target)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT,
                          check=False)
    log = done.stdout.decode(errors="replace")
    ran = re.search(r"number_of_executed_units: (\d+)", log)
    artifacts = re.findall(r"Test unit written to (\S+)", log)
    if done.returncode != 0:
        lines = log.splitlines()
        print("\n".join("    " + line for line in lines[-60:]))
        for artifact in artifacts or ["(no input was kept)"]:
            print(f"repeat it with: {os.path.relpath(program, ROOT)} {target} {artifact}", flush=True)
    return done.returncode != 0, int(ran.group(1)) if ran else 0, log


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build/fuzz/tests/fuzz/mdlm-fuzz"))
    parser.add_argument("--minutes", type=float, help="for each target")
    parser.add_argument("--seconds", type=int, help="the same")
    parser.add_argument("--target", action="append", choices=sorted(LONGEST), help="only this one (repeatable)")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (default 1)")
    options, _ = parser.parse_known_args()  # a filter of doctest's is none of ours
    seconds = options.seconds or int((options.minutes or 1) * 60)
    names = options.target or list(LONGEST)
    kept = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(options.program)))), "fuzzing")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(run, os.path.abspath(options.program), name, seconds, kept) for name in names]
        for name, future in zip(names, runs):
            wrong, executions, log = future.result()
            edges = re.findall(r"cov: (\d+)", log)
            wrong = wrong or executions == 0
            failed += wrong
            seen = edges[-1] if edges else "no"
            word = "FOUND" if wrong else "ok   "
            print(f"{word} {name:8} {executions} inputs in {seconds} s, {seen} edges", flush=True)
    print(f"mdlm-test: {len(names) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
