# SPDX-License-Identifier: Apache-2.0
"""Form: clang-format, the length of lines and files, a licence line in each file, no tabs, no blanks at the end of a
line."""
import os
import re
import subprocess

from harness import ROOT, Skip, case, have
from tree import CODE, SOURCES, TEXTS, lines_of, none, tracked

# Paths whose lines may be longer, each with the reason.
LONG_LINES = {}


def clang_format():
    """The version that .clang-format is written for: another one breaks lines elsewhere."""
    for name in ("clang-format-14", "clang-format"):
        if have(name):
            version = subprocess.run([name, "--version"], stdout=subprocess.PIPE, text=True).stdout
            if re.search(r"version 14\.", version):
                return name
    raise Skip("because clang-format 14 is not installed")


def public(path):
    return path.startswith("include/mdlm/")


@case("clang-format would change no file; the public headers are laid out by hand")
def _(_folder):
    paths = [path for path in tracked(CODE) if not public(path)]
    done = subprocess.run([clang_format(), "--dry-run", "--Werror", *paths], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    places = sorted(set(re.findall(r"^(\S+:\d+):\d+: error: code should be", done.stdout, re.MULTILINE)))
    none(places, "places that clang-format -i would change")
    assert done.returncode == 0, done.stdout[:2000]


@case("no line has more than 120 columns, in a public header 100")
def _(_folder):
    wrong = []
    for path in tracked(TEXTS):
        most = 100 if public(path) else 120
        if not any(path.startswith(prefix) for prefix in LONG_LINES):
            wrong += [f"{path}:{number}: {len(line)} columns" for number, line in enumerate(lines_of(path), 1)
                      if len(line) > most]
    none(wrong, "lines too long")


@case("every source file has an SPDX line")
def _(_folder):
    wrong = [path for path in tracked(SOURCES)
             if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines_of(path)[:3])]
    none(wrong, "files without one in their first three lines")


@case("every C and C++ file is compiled: a meson.build names it, or another file includes it")
def _(_folder):
    named = set()
    for build in tracked(("meson.build",)):
        for name in re.findall(r"'([\w./-]+\.(?:cpp|c))'", "\n".join(lines_of(build))):
            named.add(os.path.normpath(os.path.join(os.path.dirname(build), name)))
    included = set(re.findall(r'"(?:[^"\n]*/)?([\w.-]+\.(?:h|hpp))"',
                              "\n".join("\n".join(lines_of(path)) for path in tracked(CODE))))
    wrong = [path for path in tracked(CODE) if not public(path) and path not in named
             and os.path.basename(path) not in included]
    none(wrong, "files that nothing compiles")


@case("no file of src has more than 300 lines")
def _(_folder):
    counts = {path: len(lines_of(path)) - 1 for path in tracked(CODE, "src")}
    none([f"{path}: {count}" for path, count in counts.items() if count > 300], "files too long")


@case("no tabs, no blanks at the end of a line, one newline at the end of a file")
def _(_folder):
    wrong = []
    for path in tracked(TEXTS):
        lines = lines_of(path)
        wrong += [f"{path}:{number}: {'a tab' if chr(9) in line else 'a blank at the end'}"
                  for number, line in enumerate(lines, 1) if chr(9) in line or line != line.rstrip()]
        if lines[-1] != "" or (len(lines) > 1 and lines[-2] == ""):
            wrong.append(f"{path}: its end")
    none(wrong, "blanks that nobody sees")
