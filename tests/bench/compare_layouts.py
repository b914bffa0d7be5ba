#!/usr/bin/env python3
"""Two ranks of one thread against one rank of two threads, the same job and global batch, interleaved in one run.

    python3 tests/bench/compare_layouts.py [--build build] [--rounds 3]

Prints samples/s of 2 x 1 over that of 1 x 2, and the share of the step in which the two ranks waited for communication. Data
is generated in a temporary folder. Ranks are not bound; mpirun's environment for root is the caller's business.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    a = parser.parse_args()
    build = os.path.abspath(a.build)
    with tempfile.TemporaryDirectory() as folder:
        def run(name, prefix, threads, number):
            out = os.path.join(folder, f"{name}-{number}-{threads}")
            subprocess.run([*prefix, os.path.join(build, "trainer"), "--data.train", os.path.join(folder, name + ".h5"),
                            "--device.threads", str(threads), "--run.dir", out, "--optim.lr", "0.01", *CASES[name][1]],
                           check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(out, "summary.json")) as f:
                return json.load(f)

        print(f"{'case':14} {'2 x 1 over 1 x 2':>20} {'exposed communication':>22}")
        for name in a.cases or CASES:
            subprocess.run([os.path.join(build, "datatool"), "generate", "--out", os.path.join(folder, name + ".h5"), *CASES[name][0]],
                           check=True, stdout=subprocess.DEVNULL)
            ratios, exposed = [], []
            for i in range(a.rounds):
                two = run(name, ["mpirun", "-np", "2", "--bind-to", "none"], 1, i)
                one = run(name, [], 2, i)
                step = lambda s: s["step_ms"]["median"]
                ratios.append(step(one) / step(two))
                exposed.append(two["time"]["exposed_comm"])
            print(f"{name:14} {statistics.median(ratios):7.2f} ({min(ratios):.2f}-{max(ratios):.2f}) "
                  f"{statistics.median(exposed) * 100:20.1f} %", flush=True)


if __name__ == "__main__":
    main()
