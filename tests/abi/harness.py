# SPDX-License-Identifier: Apache-2.0
"""A test runner as small as these tests need: cases, skips, and the counting line that tests/run_suites.py reads."""

import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "abi")
HEADERS = [os.path.join(ROOT, "include", "mdlm", name) for name in ("mdlm.h", "chain.h")]
BUILD = os.environ.get("MDLM_BUILD_FOLDER", os.path.join(ROOT, "build"))
CC = os.environ.get("MDLM_CC", "cc").split()
CXX = os.environ.get("MDLM_CXX", "c++").split()
SHARED = os.path.join(BUILD, "src", "libmdlm.so")
MPI_SHARED = os.path.join(BUILD, "src", "comm", "mpi", "libmdlm-mpi.so")  # where this build has MPI
ARCHIVE = os.path.join(BUILD, "src", "libmdlm.a")
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
MPI_ARCHIVE = MPI_SHARED.replace(".so", ".a")
STATIC_RUNTIME = os.environ.get("MDLM_STATIC_RUNTIME", "1") == "1"
UPDATE = "--update" in sys.argv  # writes the stored lists anew instead of comparing

cases = []


class Skip(Exception):
    pass


def case(name):
    def register(function):
        cases.append((name, function))
        return function

    return register


def header():
    """Both headers of libmdlm itself, one behind the other."""
    text = ""
    for path in HEADERS:
        with open(path) as file:
            text += file.read()
    return text


def run(command, **more):
    """Output of a command; its failure is the case's, with everything it said."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}")
    return done.stdout


def have(tool):
    return any(os.access(os.path.join(folder, tool), os.X_OK) for folder in os.environ["PATH"].split(os.pathsep))


def compile_text(folder, text, compiler, flags, source="program.c", libraries=(), output="program"):
    """Compiles text in folder as a program, or as an object when flags has -c; returns the path of what it made."""
    with open(os.path.join(folder, source), "w") as file:
        file.write(text)
    run([*compiler, *flags, os.path.join(folder, source), "-o", os.path.join(folder, output), *libraries])
    return os.path.join(folder, output)


def compare_stored(name, lines):
    """Compares lines with a stored list; with --update stores them."""
    path = os.path.join(HERE, name)
    if UPDATE:
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
    with open(path) as file:
        stored = file.read().splitlines()
    gone, new = [x for x in stored if x not in lines], [x for x in lines if x not in stored]
    assert not gone and not new, (
        f"differs from tests/abi/{name}\n  stored, not here: {gone}\n  here, not stored: {new}\n"
        "  what was added on purpose is stored by: python3 tests/abi/run.py --update"
    )


def plain(text):
    """C text without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"^#(?:.*\\\n)*.*$", "", text, flags=re.MULTILINE)


def main():
    wanted = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--test-case=")]
    passed = failed = skipped = 0
    for name, function in cases:
        if wanted and not any(fnmatch.fnmatch(name, pattern) for pattern in wanted):
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="mdlm-abi-") as folder:
                function(folder)
            passed += 1
        except Skip as why:
            print(f"skipped, {why}: {name}")
            skipped += 1
        except Exception:
            print(f"FAILED: {name}")
            traceback.print_exc(file=sys.stdout)
            print(
                f"repeat it with: MDLM_BUILD_FOLDER={BUILD} python3 {os.path.relpath(sys.argv[0], ROOT)} "
                f"'--test-case={name}'"
            )
            failed += 1
    print(f"mdlm-test: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0
