#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner's plans against Megatron's full/block at the same budgets: what either adds to a step, predicted and
measured within the steps.

One process of `mdlm bench` calibrates the machine and runs no replay, both plans at 25, 50 and 75 % of the range from
the smallest budget that fits to what no replay needs, all in turn, step by step. "in steps" is the time of what a plan
adds over that of all else in the same step, so that a clock that moves between steps does not matter: medians with
quartiles. Whole steps against those without replay stand in the column "overhead".

    tests/bench/budgets.py [--build FOLDER] [--repeats N] [--threads N] [CONFIG FLAG...]

The default config is 16 diffusion layers, h 512, s 512, b 2, f32.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASE = ("--num-layers 16 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1536 --swiglu --qk-layernorm "
        "--normalization RMSNorm --disable-bias-linear --attention-mask-type no_mask --seq-length 512 "
        "--micro-batch-size 2 --params-dtype f32")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--repeats", default="25")
    parser.add_argument("--threads", default="2")
    args, flags = parser.parse_known_args()
    command = [os.path.join(args.build, "tools", "mdlm"), "bench", *(flags or CASE.split()), "--threads", args.threads,
               "--budgets", "25,50,75", "--repeats", args.repeats]
    print(" ".join(command), flush=True)
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
