#!/usr/bin/env python3
"""Training steps of Lockstep and of PyTorch on this machine, interleaved in one run; prints ratios.

    python3 -m pip install torch torchvision
    python3 tests/bench/compare_pytorch.py [--build build] [--rounds 3] [--threads 2] [MODEL:BATCH[:PRECISION] ...]

Each round runs Lockstep's step_bench, then PyTorch with its default layout, then with channels_last, each in a process of its
own with warm-up steps that are not counted. A step is forward, loss, backward and an SGD update with momentum on synthetic
images. Ratios are of the medians within a round; the table shows the median, smallest and largest over the rounds. "limit" is
the time of the convolutions alone through oneDNN (both directions, layouts of its choice) over that of our whole step.
PRECISION is fp32 (the default), bf16 or fp16; PyTorch then runs under torch.autocast, and the last column is our speed over our
own in fp32, measured in the same rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def worker(model, batch, steps, threads, channels_last, precision):
    import resource

    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    class Cnn(nn.Module):  # src/models/cnn.cpp
        def __init__(self):
            super().__init__()
            widths = [1, 16, 16, 64, 64]
            self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in zip(widths, widths[1:]))
            self.norms = nn.ModuleList(nn.BatchNorm2d(w) for w in widths[1:])
            self.fc = nn.Linear(64 * 7 * 7, 10)

        def forward(self, x):
            for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
                x = F.relu(norm(conv(x)), inplace=True)
                if i % 2:
                    x = F.max_pool2d(x, 2)
            return self.fc(x.flatten(1))

    dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    if model == "cnn":
        net, shape, classes = Cnn(), (1, 28, 28), 10
    else:
        import torchvision
        net, shape, classes = getattr(torchvision.models, model)(), (3, 224, 224), 1000
    x = torch.randn(batch, *shape)
    if channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y = torch.arange(batch) % classes
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    times = []
    for i in range(-3, steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if i >= 0:
            times.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps({"step_ms": statistics.median(times), "version": torch.__version__,
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def call(command, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    return json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def spread(values):
    return f"{statistics.median(values):5.2f} ({min(values):.2f}-{max(values):.2f})"


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        model, batch, steps, threads, channels_last, precision = sys.argv[2:]
        return worker(model, int(batch), int(steps), int(threads), channels_last == "1", precision)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("cases", nargs="*", default=["resnet50:16", "cnn:128"], metavar="MODEL:BATCH[:PRECISION]")
    a = parser.parse_args()
    print(f"{'case':17} {'speed against PyTorch':>22} {'better layout':>14} {'limit':>18} {'memory':>18} {'against our fp32':>18}")
    for case in a.cases or ["resnet50:16", "cnn:128"]:
        model, batch, precision = (case.split(":") + ["fp32"])[:3]
        steps = "8" if model.startswith("resnet") else "60"
        speed, limit, memory, against_fp32, layouts, version = [], [], [], [], [], ""
        for _ in range(a.rounds):
            bench = [os.path.join(a.build, "step_bench"), model, batch, steps, str(a.threads)]
            ours = call(bench + [precision], a.threads)
            if precision != "fp32":
                against_fp32.append(call(bench, a.threads)["step_ms"] / ours["step_ms"])
            theirs = [call([sys.executable, __file__, "--worker", model, batch, steps, str(a.threads), c, precision], a.threads)
                      for c in "01"]
            best = min(theirs, key=lambda t: t["step_ms"])
            layouts.append("channels_last" if best is theirs[1] else "default")
            version = best["version"]
            speed.append(best["step_ms"] / ours["step_ms"])
            limit.append(ours["convolutions_ms"] / ours["step_ms"])
            memory.append(ours["peak_mib"] / min(t["peak_mib"] for t in theirs))
        relative = spread(against_fp32) if against_fp32 else ""
        print(f"{case:17} {spread(speed):>22} {statistics.mode(layouts):>14} {spread(limit):>18} {spread(memory):>18} {relative:>18}",
              flush=True)
    print(f"PyTorch {version}, {a.threads} threads, {a.rounds} rounds; 1 is equal, more speed and less memory are better")


if __name__ == "__main__":
    main()
