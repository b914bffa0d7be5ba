#!/usr/bin/env python3
"""Writes networks/cnn_sgd.safetensors: the losses of twenty SGD steps of the small CNN of src/models/cnn.cpp.

Run:  python3 -m pip install torch numpy safetensors && python3 tests/golden/make_sgd_golden.py

Everything but the arithmetic comes from formula.py. A global batch is 2 micro-batches of 16: batch norm takes its statistics
over a micro-batch, the gradient is of the mean loss over the global batch, and running statistics move once a step, by the
mean of the micro-batches' statistics. Step s uses labels and images "cnn/s" (images of micro-batch m are rows 16 m ...).
torch.optim.SGD, momentum 0.9, weight decay 5e-4 on every parameter, lr 0.001 constant. Stored, in float64 arithmetic:
  losses [20]                          mean over the global batch, before each step's update
  parameter_norm [P], parameter_projection [P], running_norm [B], running_projection [B]    after the last step
"""
import pathlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import formula
from fixture import save_fixture

OUT = pathlib.Path(__file__).parent / "networks"
STEPS, MICRO, SHARDS, CLASSES, SHAPE = 20, 16, 2, 10, (1, 28, 28)
LR, MOMENTUM, DECAY = 0.001, 0.9, 5e-4


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [SHAPE[0], 16, 16, 64, 64]
        for i in range(1, 5):
            setattr(self, f"conv{i}", nn.Conv2d(widths[i - 1], widths[i], 3, padding=1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(widths[i]))
        self.fc = nn.Linear(64 * 7 * 7, CLASSES)

    def forward(self, x):
        for i in range(1, 5):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)))
            if i % 2 == 0:
                x = F.max_pool2d(x, 2)
        return self.fc(x.flatten(1))


def train(dtype):
    net = Cnn().to(dtype).train()
    for name, p in net.named_parameters():
        p.data = torch.from_numpy(formula.parameter(name, tuple(p.shape), name.startswith("bn"))).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    running = {n: b for n, b in net.named_buffers() if "running" in n}
    losses = []
    for step in range(STEPS):
        labels = formula.labels(f"cnn/{step}", MICRO * SHARDS, CLASSES)
        images = formula.images(f"cnn/{step}", MICRO * SHARDS, SHAPE, labels)
        optimizer.zero_grad()
        before = {n: b.clone() for n, b in running.items()}
        after = {n: torch.zeros_like(b) for n, b in running.items()}
        total = 0.0
        for x, y in zip(np.split(images, SHARDS), np.split(labels, SHARDS)):
            for n, b in running.items():
                b.copy_(before[n])
            logits = net(torch.from_numpy(x).to(dtype))
            loss = F.cross_entropy(logits, torch.from_numpy(y).long(), reduction="sum") / (MICRO * SHARDS)
            loss.backward()
            total += float(loss.detach())
            for n, b in running.items():
                after[n] += b / SHARDS
        for n, b in running.items():
            b.copy_(after[n])
        optimizer.step()
        losses.append(total)
    return np.array(losses), {n: p.detach().numpy() for n, p in net.named_parameters()}, \
        {n: b.numpy() for n, b in running.items()}


def norms(tensors):
    return np.array([np.linalg.norm(t.astype(np.float64)) for t in tensors.values()])


def projections(tensors):
    return np.array([formula.projection(n, t) for n, t in tensors.items()])


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    single, double = train(torch.float32), train(torch.float64)
    print("losses", np.array2string(double[0], precision=4))
    print(f"torch float32: losses differ by at most {np.max(np.abs(single[0] - double[0])):.1e}, parameters by "
          f"{max(np.linalg.norm(single[1][n] - p) / np.linalg.norm(p) for n, p in double[1].items()):.1e} of their norm")
    losses, parameters, running = double
    save_fixture(OUT / "cnn_sgd.safetensors",
                 {"losses": losses, "parameter_norm": norms(parameters), "parameter_projection": projections(parameters),
                  "running_norm": norms(running), "running_projection": projections(running)},
                 {"model": "cnn", "micro": str(MICRO), "shards": str(SHARDS), "classes": str(CLASSES),
                  "lr": str(LR), "momentum": str(MOMENTUM), "weight_decay": str(DECAY),
                  "parameters": ",".join(parameters), "buffers": ",".join(running)})
