#!/usr/bin/env python3
"""The same job and global batch in several layouts, interleaved in one run, on two cores.

    python3 tests/bench/compare_layouts.py [--build build] [--rounds 3] [CASE...]

Sides: 1x2 is one rank with one device of two threads, 2x1 two ranks (DDP), dp two replicas in one rank, root the same with
--dp-sync root, fast 2x1 with --reduction fast. Prints ratios of median step times (more is faster for the first named), the
share of the step in which the first named waited for communication, and peak memory of dp over the sum of both ranks of 2x1.
Data is generated in a temporary folder. Ranks are not bound; mpirun's environment for root is the caller's business.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

CASES = {  # name: datatool generate's arguments, the trainer's
    "cnn": (["--size", "28"], ["--model.name", "cnn", "--batch.micro", "16", "--batch.global", "128", "--train.steps", "300"]),
    "resnet18_32": (["--size", "32", "--channels", "3"],
                    ["--model.name", "resnet18_32", "--batch.micro", "16", "--batch.global", "64", "--train.steps", "25"]),
    "resnet50": (["--size", "224", "--channels", "3", "--samples", "256"],
                 ["--model.name", "resnet50", "--batch.micro", "16", "--batch.global", "32", "--train.steps", "8"]),
}
RANKS = ["mpirun", "-np", "2", "--bind-to", "none"]
SIDES = {  # name: launcher, the trainer's arguments
    "1x2": ([], ["--device.threads", "2"]),
    "2x1": (RANKS, ["--device.threads", "1"]),
    "dp": ([], ["--device.threads", "1", "--replicas", "2"]),
    "root": ([], ["--device.threads", "1", "--replicas", "2", "--dp-sync", "root"]),
    "fast": (RANKS, ["--device.threads", "1", "--reduction", "fast"]),
}
RATIOS = [("2x1", "1x2"), ("dp", "2x1"), ("root", "dp"), ("2x1", "fast")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    a = parser.parse_args()
    build = os.path.abspath(a.build)
    with tempfile.TemporaryDirectory() as folder:
        def run(name, side, number):
            out = os.path.join(folder, f"{name}-{number}-{side}")
            launcher, arguments = SIDES[side]
            subprocess.run([*launcher, os.path.join(build, "trainer"), "--data.train", os.path.join(folder, name + ".h5"),
                            "--run.dir", out, "--optim.lr", "0.01", *arguments, *CASES[name][1]],
                           check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(out, "summary.json")) as f:
                return json.load(f)

        print(f"{'case':12} {'sides':12} {'speed':>18} {'exposed comm':>13} {'peak memory':>12}")
        for name in a.cases or CASES:
            subprocess.run([os.path.join(build, "datatool"), "generate", "--out", os.path.join(folder, name + ".h5"), *CASES[name][0]],
                           check=True, stdout=subprocess.DEVNULL)
            rounds = [{side: run(name, side, i) for side in SIDES} for i in range(a.rounds)]
            for first, second in RATIOS:
                ratios = [r[second]["step_ms"]["median"] / r[first]["step_ms"]["median"] for r in rounds]
                exposed = statistics.median(r[first]["time"]["exposed_comm"] for r in rounds)
                memory = ""
                if (first, second) == ("dp", "2x1"):
                    memory = f"{statistics.median(r[first]['peak_host_bytes'] / (2 * r[second]['peak_host_bytes']) for r in rounds):.2f}"
                print(f"{name:12} {first + ' / ' + second:12} {statistics.median(ratios):5.2f} ({min(ratios):.2f}-{max(ratios):.2f}) "
                      f"{exposed * 100:11.1f} % {memory:>12}", flush=True)


if __name__ == "__main__":
    main()
