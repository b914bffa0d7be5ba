#!/usr/bin/env python3
"""Writes grad_scaler.txt: the loss scale and growth tracker of PyTorch after each of a scripted row of steps.

Run:  python3 -m pip install torch && python3 tests/golden/make_grad_scaler.py

A block begins with "options INIT_SCALE GROWTH_FACTOR BACKOFF_FACTOR GROWTH_INTERVAL". Each line after it is a step:
found_inf (0 or 1), then the state after the update: scale (fp32, in digits that read back exactly) and tracker.
No scale falls below 1, where the floor of src/train/grad_scaler.h would part from PyTorch.
"""
import pathlib

import torch

OUT = pathlib.Path(__file__).parent / "grad_scaler.txt"


def good(n):
    return [0] * n


def bad(n):
    return [1] * n


TRACES = [
    # The defaults, but for a short interval: growth, an overflow right after it, one just before it is due, a burst
    # down to exactly 1, and up again.
    ((65536.0, 2.0, 0.5, 4), good(9) + bad(1) + good(3) + bad(1) + good(4) + bad(17) + good(13) + bad(2) + good(4)),
    # Factors that are no powers of two: every update rounds to fp32.
    ((65537.3, 1.7, 0.3, 2), good(7) + bad(3) + good(9) + bad(1) + good(1) + bad(2) + good(5)),
    # Grows with every good step, up to the largest fp32 and no further.
    ((2.0**120, 2.0, 0.5, 1), good(12) + bad(1) + good(3)),
    ((3.0e38, 1.1, 0.9, 3), good(13) + bad(1) + good(7)),
]

lines = []
for options, steps in TRACES:
    init, growth, backoff, interval = options
    scale, tracker = torch.tensor([init]), torch.zeros(1, dtype=torch.int32)
    lines.append(f"options {init!r} {growth!r} {backoff!r} {interval}")
    for found_inf in steps:
        torch._amp_update_scale_(scale, tracker, torch.tensor([float(found_inf)]), growth, backoff, interval)
        assert scale.item() >= 1
        lines.append(f"{found_inf} {scale.item():.9g} {tracker.item()}")
OUT.write_text("\n".join(lines) + "\n")
