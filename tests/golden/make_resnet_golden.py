#!/usr/bin/env python3
"""Writes networks/resnet*.safetensors: loss, logits and what is needed to check every gradient of a whole network; and
networks/resnet_tensors.txt: name and shape of every parameter and running statistic of torchvision's ResNets.

Run:  python3 -m pip install torch torchvision numpy safetensors && python3 tests/golden/make_resnet_golden.py

Parameters, images and labels come from formula.py (formula.h in C++), so no weights are stored. One micro-batch of 4 images
of 64x64, classes 10, float64 throughout. The loss is the sum over samples of the cross-entropy. Stored:
  logits [N, classes], loss
  grad_norm [P], grad_projection [P], grad_samples [P, 8]     float64, P parameters as listed in metadata "parameters"
  running_norm [B]                                            norm of each running statistic after the forward
Gradients jump where an activation crosses zero, so a float32 run may differ by far more than rounding when one lies
within rounding of a kink. `margin` below is the smallest distance of any ReLU input from 0 and of the two largest entries
of any pooling window from one another; among SALTS image sets the one with the largest is used. It is stored as metadata.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

import formula
from fixture import save_fixture

OUT = pathlib.Path(__file__).parent / "networks"
BATCH, SHAPE, CLASSES, SAMPLES, SALTS = 4, (3, 64, 64), 10, 8, 40


def fill(net):
    norms = {name for name, m in net.named_modules() if isinstance(m, torch.nn.BatchNorm2d)}
    for name, p in net.named_parameters():
        p.data = torch.from_numpy(formula.parameter(name, tuple(p.shape), name.rpartition(".")[0] in norms)).to(p.dtype)
    for name, b in net.named_buffers():
        b.fill_(1 if name.endswith("running_var") else 0)


def data(salt):
    y = formula.labels(salt, BATCH, CLASSES)
    return torch.from_numpy(formula.images(salt, BATCH, SHAPE, y)), torch.from_numpy(y).long()


def margin(net, x):
    """The smallest distance to a kink in a forward of x."""
    found = [float("inf")]

    def relu(_, inputs):
        found[0] = min(found[0], float(inputs[0].abs().min()))

    def pool(m, inputs):
        padded = F.pad(inputs[0], [m.padding] * 4, value=-1e9)  # finite: two padded entries never lead a window
        windows = F.unfold(padded.flatten(0, 1).unsqueeze(1), m.kernel_size, stride=m.stride)
        top = windows.topk(2, dim=1).values
        gap = top[:, 0] - top[:, 1]
        found[0] = min(found[0], float(gap[top[:, 0] > 0].min()))  # equal zeros behind a ReLU carry no gradient

    hooks = [m.register_forward_pre_hook(pool if isinstance(m, torch.nn.MaxPool2d) else relu)
             for m in net.modules() if isinstance(m, (torch.nn.ReLU, torch.nn.MaxPool2d))]
    with torch.no_grad():
        net(x)
    for h in hooks:
        h.remove()
    return found[0]


def run(net, salt, dtype):
    net = net.to(dtype)
    fill(net)
    x, y = data(salt)
    net.zero_grad()
    logits = net(x.to(dtype))
    loss = F.cross_entropy(logits, y, reduction="sum")
    loss.backward()
    return logits.detach().numpy(), float(loss.detach()), {n: p.grad.numpy().copy() for n, p in net.named_parameters()}


def summaries(gradients):
    norms = np.array([np.linalg.norm(g.astype(np.float64)) for g in gradients.values()])
    projections = np.array([formula.projection(n, g) for n, g in gradients.items()])
    samples = np.stack([g.reshape(-1)[formula.sample_indices(n, g.size, SAMPLES)] for n, g in gradients.items()])
    return norms, projections, samples.astype(np.float64)


def make(name):
    net = getattr(torchvision.models, name)(num_classes=CLASSES).double().train()
    fill(net)
    margins = {}
    for i in range(SALTS):
        margins[f"{name}/{i}"] = margin(net, data(f"{name}/{i}")[0].double())
    salt = max(margins, key=margins.get)

    single = run(net, salt, torch.float32)
    logits, loss, gradients = run(net, salt, torch.float64)
    norms, projections, samples = summaries(gradients)
    worst = max(np.linalg.norm(single[2][n] - g) / np.linalg.norm(g) for n, g in gradients.items())
    print(f"{name}: salt {salt}, margin {margins[salt]:.2g}, loss {loss:.6f}, "
          f"torch float32 differs by at most {worst:.1e} of a gradient's norm")

    running = np.array([np.linalg.norm(b.numpy()) for n, b in net.named_buffers() if "running" in n])
    save_fixture(OUT / f"{name}.safetensors",
                 {"logits": logits, "loss": np.array(loss), "grad_norm": norms, "grad_projection": projections,
                  "grad_samples": samples, "running_norm": running},
                 {"model": name, "salt": salt, "batch": str(BATCH), "classes": str(CLASSES),
                  "shape": ",".join(map(str, SHAPE)), "margin": f"{margins[salt]:.3g}",
                  "parameters": ",".join(gradients),
                  "buffers": ",".join(n for n, _ in net.named_buffers() if "running" in n)})


def list_tensors():
    with open(OUT / "resnet_tensors.txt", "w") as file:
        for depth in (18, 34, 50, 101, 152):
            with torch.device("meta"):
                net = getattr(torchvision.models, f"resnet{depth}")()
            for kind, tensors in (("parameter", net.named_parameters()), ("buffer", net.named_buffers())):
                for name, t in tensors:
                    if not name.endswith("num_batches_tracked"):
                        print(f"resnet{depth} {kind} {name} [{', '.join(map(str, t.shape))}]", file=file)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for model in ("resnet18", "resnet50"):
        make(model)
    list_tensors()
