#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suite `mpi`: groups of processes under mpirun, on this machine and on two machines that are network namespaces.
Prints what tests/run_suites.py counts.

    python3 tests/mpi/run.py [--test-case='t = 2: block: *']
"""
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

import hosts

PROGRAMS = os.environ.get("MDLM_MPI_PROGRAMS", "")  # the folder; "" in a build without MPI
RANKS, NUMBERS = (os.path.join(PROGRAMS, "mdlm-test-mpi-" + name) for name in ("ranks", "numbers"))
os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # MPI itself does not free everything
# More than 1 for sanitizers, which see in two ranks what there is to see.
FACTOR = float(os.environ.get("MDLM_MPI_PATIENCE", "1"))
SIZES = (2, 4) if FACTOR == 1 else (2,)


class Skip(Exception):
    pass


def launcher():
    """mpirun with what it takes to run here: as root, and with more processes than cores."""
    if not PROGRAMS:
        raise Skip("because this build has no MPI")
    command = shutil.which("mpirun")
    if command is None:
        raise Skip("because there is no mpirun")
    version = subprocess.run([command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    if "Open MPI" not in version and "Open RTE" not in version:
        return [command]
    return [command, "--oversubscribe", "--bind-to", "none", "--mca", "btl_base_warn_component_unused", "0",
            *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def can_launch(mpirun):
    """A launcher that cannot start any program here says nothing about the library."""
    try:
        status, output, _ = run([*mpirun, "-n", "2", "true"], 60)
    except AssertionError as e:
        status, output = None, str(e)
    if status != 0:
        why = " ".join(output.split())[:200] or f"exit status {status}"
        raise Skip(f"because {mpirun[0]} starts no processes here ({why})")


def run(command, seconds):
    """(exit status, output, seconds) of a command that has to end in time."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               text=True, errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds * FACTOR)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # mpirun ends its processes
        try:
            output, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        raise AssertionError(f"{' '.join(command)}\ndid not end within {seconds * FACTOR:.0f} s\n{output}")
    return process.returncode, output, time.monotonic() - began


def listed(program, size, *filters):
    out = subprocess.run([program, "--list", "--size", str(size), *filters], check=True, stdout=subprocess.PIPE,
                         text=True).stdout
    return out.splitlines()


class Suite:
    def __init__(self, patterns):
        self.patterns, self.passed, self.failed, self.skipped = patterns, 0, 0, 0

    def wants(self, name):
        return not self.patterns or any(fnmatch.fnmatch(name, pattern) for pattern in self.patterns)

    def fail(self, name, why):
        print(f"FAILED: {name}\n{why}\nrepeat it with: "
              f"MDLM_MPI_PROGRAMS={PROGRAMS} python3 tests/mpi/run.py '--test-case={name}'")
        self.failed += 1

    def skip(self, name, why):
        print(f"skipped, {why}: {name}")
        self.skipped += 1

    def one(self, name, function):
        """A case that is a function here."""
        if not self.wants(name):
            return
        try:
            function()
            self.passed += 1
        except (Skip, hosts.Cannot) as why:
            self.skip(name, why)
        except Exception:
            self.fail(name, traceback.format_exc())
        sys.stdout.flush()

    def program(self, prefix, size, command, seconds, *filters):
        """Cases of a program of ranks, the last word of command, all in one run."""
        names = [name for name in listed(command[-1], size, *filters) if self.wants(prefix + name)]
        if not names:
            return
        wrong = ""
        try:
            status, output, _ = run([*command, *(names if self.patterns else filters)], seconds)
        except AssertionError as e:
            status, output, wrong = None, str(e), "the run did not end in time"
        seen = dict(re.findall(r"^mpi-case: (.*?): (holds$|fails: .*)", output, re.MULTILINE))
        for name in names:
            if seen.get(name) == "holds":
                self.passed += 1
            else:
                self.fail(prefix + name,
                          seen.get(name) or f"{wrong or 'did not report'}; exit status {status}; its output:\n{output}")
        if status != 0 and all(seen.get(name) == "holds" for name in names):
            self.fail(prefix + names[-1], f"all cases hold, but then: exit status {status}; its output:\n{output}")
        sys.stdout.flush()


def ends(mpirun, size, what, seconds):
    """A rank that ends its process: the launcher, or else the library's timeout, ends the others."""
    def body():
        status, output, took = run([*mpirun, "-n", str(size), RANKS, what], seconds + 30)
        lived = re.findall(r"lived on with (\w+)", output)
        assert all(status == "MDLM_ERROR_COMM" for status in lived), output
        assert status != 0 or lived, f"nobody noticed\n{output}"
        assert took < seconds * FACTOR, f"took {took:.1f} s\n{output}"
    return body


def crosses(two, where, before):
    """The ranks of the cases before did sit on two hosts, and talked over the cable."""
    def body():
        status, output, _ = run(where, 60)
        assert status == 0 and sorted(set(output.split())) == two.names, output
        sent = two.crossed() - before
        assert sent > 10e6, f"only {sent} bytes crossed the cable"
    return body


def states(mpirun, size):
    def body():
        status, output, _ = run([*mpirun, "-n", str(size), RANKS, "states"], 60)
        assert status == 0 and "mpi-case: states: holds" in output, output
    return body


def main():
    suite = Suite([a.split("=", 1)[1] for a in sys.argv if a.startswith("--test-case=")])
    try:
        mpirun = launcher()
        can_launch(mpirun)
    except Skip as why:
        suite.skip("everything of this suite", why)
        mpirun = None
    if mpirun is not None:
        for size in (1, *SIZES):
            filters = ["conformance"] if size == 1 else []
            suite.program(f"t = {size}: ", size, [*mpirun, "-n", str(size), RANKS], 120 + 60 * size, *filters)
        for size in SIZES if FACTOR == 1 else ():  # all cases of the suite parallel
            suite.program(f"t = {size}: ", size, [*mpirun, "-n", str(size), NUMBERS], 300)
        for size in SIZES:
            suite.one(f"t = {size}: before MPI_Init and after MPI_Finalize", states(mpirun, size))
            suite.one(f"t = {size}: a rank exits", ends(mpirun, size, "exit", 20))
            suite.one(f"t = {size}: a rank is killed", ends(mpirun, size, "kill", 20))
        if FACTOR == 1 and (not suite.patterns or any(pattern.startswith("two hosts") for pattern in suite.patterns)):
            try:
                with hosts.TwoHosts() as two:
                    for size in (2, 4):
                        before = two.crossed()
                        suite.program("two hosts: " if size == 2 else "two hosts, two ranks on each: ", size,
                                      [*two.mpirun(mpirun, size), RANKS], 240, *hosts.CASES)
                        suite.one(f"two hosts, {size} ranks: over the network",
                                  crosses(two, [*two.mpirun(mpirun, size), "hostname"], before))
            except hosts.Cannot as why:
                suite.skip("two hosts", why)
    print(f"mdlm-test: {suite.passed} passed, {suite.failed} failed, {suite.skipped} skipped")
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
