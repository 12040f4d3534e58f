# SPDX-License-Identifier: Apache-2.0
"""The files of the source tree, as git tracks them."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "abi"))
from harness import ROOT, Skip  # noqa: E402

CODE = (".cpp", ".hpp", ".c", ".h")
SOURCES = CODE + (".py", ".sh", "meson.build", "meson_options.txt", ".map", ".ini", ".ci/run")
TEXTS = SOURCES + (".md",)


def tracked(suffixes, *folders):
    """Paths from the root, of the given folders or of all."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--", *folders], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)
    if listed.returncode != 0:
        raise Skip("because this tree is no git checkout")
    return [path for path in listed.stdout.split("\0")
            if path.endswith(suffixes) and os.path.exists(os.path.join(ROOT, path))]


def lines_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read().split("\n")


def none(found, what):
    """Fails and names the first of what was found, and how many there are."""
    assert not found, f"{len(found)} {what}:\n  " + "\n  ".join(found[:20])
