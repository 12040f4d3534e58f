# SPDX-License-Identifier: Apache-2.0
"""Who may include whom. The folders of src are floors: a file includes its own floor and those below, never one
above."""
import os
import re

from harness import case
from tree import CODE, lines_of, none, tracked

# By floor, all that its files may include beside the public headers. From the bottom to the top: each knows earlier
# ones only.
FLOORS = {
    "base": set(),
    "device": {"base"},  # no groups of ranks: a device is of one process
    "comm": {"base"},
    "op": {"base", "device", "comm"},
    "layer": {"base", "device", "comm", "op"},
    "planner": {"base"},  # abstract chains: no layers, devices or settings
    "plan": {"base", "device", "comm", "op", "layer", "planner"},
    "block": {"base", "device", "comm", "op", "layer", "planner", "plan"},
    "api": {"base", "device", "comm", "op", "layer", "planner", "plan", "block"},
}


def includes(path):
    """(line number, what is included) for every include of a file of this tree."""
    for number, line in enumerate(lines_of(path), 1):
        found = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if found:
            yield number, found.group(1)


def floor_of(included):
    folder = included.split("/")[0]
    return folder if "/" in included and folder in FLOORS else None


@case("no file of src includes a floor above its own")
def _(_folder):
    wrong = []
    for path in tracked(CODE, "src"):
        own = path.split("/")[1]
        for number, included in includes(path):
            floor = floor_of(included)
            if floor is not None and floor != own and floor not in FLOORS[own]:
                wrong.append(f"{path}:{number}: {included}")
    none(wrong, "includes of a floor that is not below")


@case("every folder of src is a floor, and the floors have no circle")
def _(_folder):
    folders = {path.split("/")[1] for path in tracked(CODE, "src")}
    assert folders == set(FLOORS), f"folders {sorted(folders)}: expected {sorted(FLOORS)}"
    order = list(FLOORS)
    none([f"{floor} above {below}" for floor, all_below in FLOORS.items() for below in all_below
          if order.index(below) >= order.index(floor)], "floors out of order")


@case("the two devices do not include each other, and nobody else includes what is inside of one")
def _(_folder):
    wrong = []
    for path in tracked(CODE, "src"):
        for number, included in includes(path):
            inside = re.match(r"(device/(?:cpu|reference)|comm/mpi)/", included)
            if inside and not path.startswith(f"src/{inside.group(1)}/"):
                wrong.append(f"{path}:{number}: {included}")
    none(wrong, "includes of another folder's inside")


@case("tools and examples include the public headers only")
def _(_folder):
    wrong = [f"{path}:{number}: {included}" for path in tracked(CODE, "tools", "examples")
             for number, included in includes(path) if floor_of(included) is not None]
    none(wrong, "includes of src")


@case("an include of this tree names a file that is there")
def _(_folder):
    here = set(tracked(CODE))
    wrong = [f"{path}:{number}: {included}" for path in tracked(CODE, "src") for number, included in includes(path)
             if floor_of(included) is not None and os.path.join("src", included) not in here]
    none(wrong, "includes of nothing")
