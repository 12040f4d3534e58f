#!/usr/bin/env python3
"""Times the planner's plans against Megatron's full/block at the same budgets: predicted and measured.

Calibrates the machine, takes budgets at 25, 50 and 75 % of the range from the smallest that fits to what no replay needs, and runs
`mdlm bench` for the plan of each budget and for the fewest layers of full/block that fit in it, each beside the same block without replay.
Overheads are medians of ratios within a repeat.

    tests/bench/budgets.py [--build FOLDER] [--repeats N] [CONFIG FLAG...]      (default: 16 diffusion layers, h 512, s 512, b 2, f32)
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASE = ("--num-layers 16 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1536 --swiglu --qk-layernorm --normalization RMSNorm "
        "--disable-bias-linear --attention-mask-type no_mask --seq-length 512 --micro-batch-size 2 --params-dtype f32")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--repeats", default="9")
    parser.add_argument("--threads", default="2")
    args, flags = parser.parse_known_args()
    case = (flags or CASE.split()) + ["--threads", args.threads]
    layers = int(case[case.index("--num-layers") + 1])

    def mdlm(*words):
        done = subprocess.run([os.path.join(args.build, "tools", "mdlm"), *words], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(2)
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.json")
        with open(table, "w") as to:
            to.write(mdlm("plan", "--calibrate", *case))

        def plan(*words):
            return json.loads(mdlm("plan", *case, "--device-table", table, *words, "--json"))

        def bench(*words):
            ran = json.loads(mdlm("bench", *case, "--device-table", table, "--repeats", args.repeats, *words, "--json"))
            return ran["settings"][-1]

        points = plan("--sweep")
        least = points["frontier"][0]["peak_bytes"]
        none = next(m for m in points["megatron"] if m["setting"] == "none")
        blocks = [m for m in points["megatron"] if m["setting"].startswith("full block") or m["setting"] == "full uniform 1"]
        step_ns = 0
        rows = []
        for share in (25, 50, 75):
            budget = least + (none["peak_bytes"] - least) * share // 100
            fitting = [m for m in blocks if m["peak_bytes"] <= budget]
            found = plan("--budget", str(budget))
            step_ns = found["forward_ns"] + found["backward_ns"]
            rows.append((share, budget, "planner", found, bench("--memory-budget", str(budget))))
            if fitting:
                best = min(fitting, key=lambda m: m["extra_ns"])
                rows.append((share, budget, best["setting"], best, bench(*best["flags"].split())))

    # "none" keeps what a plan need not keep: measured overheads are over it, so predictions are, too.
    print(f"{'budget':>20}  {'plan':>14}  {'peak MiB':>8}  {'predicted':>9}  {'measured':>9}  of full/block: predicted  measured")
    for share, budget, name, predicted, measured in rows:
        over = (predicted["extra_ns"] - none["extra_ns"]) / (step_ns + none["extra_ns"])
        line = (f"{share:>3} % {budget / 2**20:>9.1f} MiB  {name:>14}  {measured['memory']['peak_bytes'] / 2**20:8.1f}  {over:+9.1%}  "
                f"{measured['overhead']:+9.1%}")
        rival = next((r for r in rows if r[0] == share and r[2] != "planner"), None)
        if name == "planner" and rival:
            theirs = rival[3]["extra_ns"]
            line += f"  {predicted['extra_ns'] / theirs:23.2f}  {measured['overhead'] / rival[4]['overhead']:8.2f}"
        print(line)


if __name__ == "__main__":
    main()
