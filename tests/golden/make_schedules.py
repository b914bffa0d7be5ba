#!/usr/bin/env python3
"""Prints the learning rates of torch.optim.lr_scheduler that tests/unit/train/schedule_test.cpp holds: steps 0, 1, 7, 9,
10, 37, 60, 80, 99 of 100, ten steps an epoch, base 0.4, warm-up of ten steps from 0.1.

Run:  python3 tests/golden/make_schedules.py
"""
import torch
from torch.optim import lr_scheduler as s

STEPS, TOTAL, WARMUP, BASE = (0, 1, 7, 9, 10, 37, 60, 80, 99), 100, 10, 0.4


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE)
    scheduler, taken = make(optimizer), []
    for _ in range(TOTAL):
        taken.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return [taken[i] for i in STEPS]


def linear(o):
    return s.LinearLR(o, start_factor=0.1, total_iters=WARMUP)


def after_warmup(make):
    return lambda o: s.SequentialLR(o, [linear(o), make(o)], milestones=[WARMUP])


def times_warmup(make):
    return lambda o: s.ChainedScheduler([linear(o), make(o)])


for name, make in {
    "constant": linear,
    "step": times_warmup(lambda o: s.StepLR(o, step_size=30, gamma=0.1)),
    "multistep": times_warmup(lambda o: s.MultiStepLR(o, milestones=[37, 80], gamma=0.2)),
    "cosine": after_warmup(lambda o: s.CosineAnnealingLR(o, T_max=TOTAL - WARMUP, eta_min=0.01)),
    "polynomial": after_warmup(lambda o: s.PolynomialLR(o, total_iters=TOTAL - WARMUP, power=2)),
    "cosine without warm-up": lambda o: s.CosineAnnealingLR(o, T_max=TOTAL),
}.items():
    print(f'{name:24} {{{", ".join(f"{v:.12g}" for v in rates(make))}}}')
