#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the suites that Meson knows in one or more build folders, two at a time, and adds up what they count.

Every suite prints `mdlm-test: P passed, F failed, S skipped`. One that dies, hangs or prints no such line counts as a
failure. Last line here: `P passed, F failed, S skipped` over all suites.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

AT_A_TIME = 2  # as many cores as test machines have; most of what takes long runs on one thread
COUNT = re.compile(rb"^mdlm-test: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)


def tests_of(build):
    listed = json.loads(subprocess.run(["meson", "introspect", "--tests", build], check=True,
                                       stdout=subprocess.PIPE).stdout)
    for test in listed:
        labels = {label.split(":")[-1] for label in test["suite"]}
        yield {"build": build, "name": test["name"], "slow": "slow" in labels, "command": test["cmd"],
               "env": test["env"], "log": os.path.join(build, f"suite-{test['name']}.log"), "timeout": test["timeout"],
               "folder": test["workdir"] or build}


alive = set()  # suites that run now
starting = threading.Lock()


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(test, extra, log_path):
    """Returns (passed, failed, skipped, what else went wrong or '')."""
    if not os.access(test["command"][0], os.X_OK):
        open(log_path, "wb").close()
        return 0, 1, 0, "was not built"
    with open(log_path, "wb") as log:
        with starting:
            process = subprocess.Popen(test["command"] + extra, stdout=log, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, cwd=test["folder"], env={**os.environ, **test["env"]},
                                       start_new_session=True)
            alive.add(process)
        wrong, limit = "", test["timeout"] * AT_A_TIME
        try:
            code = process.wait(timeout=limit)
            if code < 0:
                wrong = f"died of {signal.Signals(-code).name}"
            elif code > 0:
                wrong = f"exit status {code}"
        except subprocess.TimeoutExpired:
            kill(process)
            process.wait()
            wrong = f"ran past {limit} s"
        finally:
            alive.discard(process)
    with open(log_path, "rb") as log:
        found = COUNT.findall(log.read())
    if not found:
        return 0, 1, 0, (wrong + ", " if wrong else "") + "counted nothing"
    passed, failed, skipped = (int(n) for n in found[-1])
    if not extra and passed + failed + skipped == 0:
        failed, wrong = 1, "has no test"
    if wrong and failed == 0:
        failed = 1  # a leak found at exit, a crash in a destructor: no case failed, the suite did
    return passed, failed, skipped, wrong


def run_all(tests, extra):
    """Returns one future a test, in order. One thread takes fast suites from the front, the others slow ones from the
    back: both orders end at about the same time, and what fails soon is seen soon."""
    left = collections.deque((test, concurrent.futures.Future()) for test in tests)
    futures = [future for _, future in left]

    def work(take):
        while True:
            try:
                test, future = take()
            except IndexError:
                return
            began = time.monotonic()
            try:
                result = run(test, extra, test["log"])
                future.set_result((*result, time.monotonic() - began))
            except Exception as error:
                future.set_exception(error)

    for number in range(AT_A_TIME):
        threading.Thread(target=work, args=(left.popleft if number == 0 else left.pop,), daemon=True).start()
    return futures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="+", metavar="FOLDER[:SUITE,...]",
                        help="build folders, in order, and which of their suites; fast ones come before slow ones")
    parser.add_argument("--suite", action="append", help="only this suite (repeatable)")
    parser.add_argument("--case", help="only test cases that match (a filter of doctest: * stands for anything)")
    parser.add_argument("--list", action="store_true", help="names the suites and runs none")
    parser.add_argument("--add", type=int, nargs=3, default=[0, 0, 0], metavar=("P", "F", "S"),
                        help="counts of earlier runs, to add")
    options = parser.parse_args()

    tests, absent = [], []
    for build in options.builds:
        folder, _, only = build.partition(":")
        there = {test["name"]: test for test in tests_of(folder)}
        tests += [test for name, test in there.items() if not only or name in only.split(",")]
        absent += [f"{folder}  {name}" for name in only.split(",") if only and name not in there]
    tests.sort(key=lambda test: test["slow"])
    if options.suite:
        tests = [test for test in tests if test["name"] in options.suite]
    if options.list:
        for test in tests:
            print(f"{os.path.relpath(test['build'])}  {test['name']}{'  (slow)' if test['slow'] else ''}")
        return 0
    for name in [] if options.suite else absent:
        print(f"skipped, because this build has no such suite: {name}")
        options.add = [*options.add[:2], options.add[2] + 1]
    extra = ["--test-case=" + options.case] if options.case else []
    total, width = list(options.add), max((len(os.path.relpath(test["build"]) + test["name"]) for test in tests),
                                          default=0) + 2
    for number, (test, future) in enumerate(zip(tests, run_all(tests, extra)), 1):
        where, log_path = os.path.relpath(test["build"]), test["log"]
        print(f"[{number}/{len(tests)}] {where + '  ' + test['name']:{width}} ", end="", flush=True)
        passed, failed, skipped, wrong, seconds = future.result()
        print(f"{passed} passed, {failed} failed, {skipped} skipped  ({seconds:.1f} s)"
              + (f"  {wrong}" if wrong else ""), flush=True)
        with open(log_path, "r", errors="replace") as log:
            lines = log.read().splitlines()
        if failed:
            print("\n".join("    " + line for line in lines[-120:]))
            print(f"    all of it: {log_path}")
        else:
            for line in lines:
                if line.startswith(("skipped, ", "note: ")):
                    print("    " + line)
        total = [a + b for a, b in zip(total, (passed, failed, skipped))]
    if not tests or sum(total) == 0:
        print("no test ran")
        total[1] += 1
    sys.stdout.flush()
    print("%d passed, %d failed, %d skipped" % tuple(total), flush=True)
    return 1 if total[1] else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        sys.exit(main())
    finally:  # after an interrupt suites are still running, and no other may start
        starting.acquire()
        for process in list(alive):
            kill(process)
