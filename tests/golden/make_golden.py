#!/usr/bin/env python3
"""Writes ops/*.safetensors: one file a case, an operator's inputs, outputs and all gradients, from PyTorch.

Run:  python3 -m pip install torch numpy safetensors && python3 tests/golden/make_golden.py

Inputs are float32; PyTorch computes in float64 from them; results are rounded to float32 once. Tensors:
  x, x2 ...       inputs                          y     output
  weight, bias    parameters                      dy    upstream gradient (absent for losses: it is 1)
  dx, dweight ... gradient of sum(y * dy)
  running_mean, running_var                       before;  ..._after: after one training forward
  labels (int32), sample_weight                   for losses
Metadata, all strings: op, and the operator's attributes (pairs as "3,2"). Values are drawn so that no ReLU input and no
two entries of one pooling window lie so close that float32 rounding could change a branch.

Cases named ..._half are for the half precisions, where another branch would be another result: their x, x2 and dy are
values that bf16 and fp16 both hold, so that only the outputs are rounded.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

from fixture import save_fixture

OUT = pathlib.Path(__file__).parent / "ops"


def random(rng, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def separated(rng, *shape):
    """Distinct values at least 2 / size apart, none near 0, in random order."""
    n = int(np.prod(shape))
    values = (np.arange(n) - n // 2 + 0.5) * (4.0 / n)
    return rng.permutation(values).reshape(shape).astype(np.float32)


def half(values):
    """Rounded to 8 significant bits, between 2^-14 and 2^15: exact in bf16 and in fp16."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(np.rint(mantissa * 256), exponent - 8).astype(np.float32)


def save(name, op, tensors, **attributes):
    meta = {"op": op} | {k: ",".join(map(str, v)) if isinstance(v, tuple) else str(v) for k, v in attributes.items()}
    arrays = {}
    for key, value in tensors.items():
        value = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        arrays[key] = np.ascontiguousarray(value.astype(np.float32 if value.dtype.kind == "f" else np.int32))
    save_fixture(OUT / f"{name}.safetensors", arrays, meta)


def case(name, op, inputs, forward, rng, extra=lambda leaves: {}, **attributes):
    """Runs forward(*inputs) in float64, draws dy, and saves inputs, y, dy and a gradient for every input."""
    leaves = {k: torch.from_numpy(v).double().requires_grad_() for k, v in inputs.items()}
    y = forward(*leaves.values())
    dy = random(rng, *y.shape)
    if name.endswith("_half"):
        dy = half(dy)
    y.backward(torch.from_numpy(dy).double())
    gradients = {f"d{k}": leaf.grad for k, leaf in leaves.items()}
    save(name, op, inputs | {"y": y, "dy": dy} | gradients | extra(leaves), **attributes)


def convolutions():
    #        name                    x [N, C, H, W]   out kernel  stride  padding dilation groups bias
    table = [("conv2d_3x3",         (2, 16, 9, 11),   32, (3, 3), (1, 1), (1, 1), (1, 1), 1, 0),
             ("conv2d_3x3_bias",    (2, 16, 8, 8),    16, (3, 3), (1, 1), (1, 1), (1, 1), 1, 1),
             ("conv2d_stem",        (2, 3, 17, 17),   16, (7, 7), (2, 2), (3, 3), (1, 1), 1, 0),
             ("conv2d_gray",        (2, 1, 10, 10),   16, (3, 3), (1, 1), (1, 1), (1, 1), 1, 0),
             ("conv2d_1x1",         (2, 32, 5, 7),    16, (1, 1), (1, 1), (0, 0), (1, 1), 1, 0),
             ("conv2d_1x1_stride",  (2, 16, 9, 9),    32, (1, 1), (2, 2), (0, 0), (1, 1), 1, 0),
             ("conv2d_odd",         (3, 5, 7, 9),      7, (3, 3), (2, 1), (1, 0), (1, 1), 1, 1),
             ("conv2d_rectangular", (2, 6, 9, 8),     10, (5, 3), (2, 1), (2, 1), (1, 1), 1, 1),
             ("conv2d_dilated",     (2, 16, 11, 11),  16, (3, 3), (1, 1), (2, 2), (2, 2), 1, 1),
             ("conv2d_groups",      (2, 32, 7, 7),    64, (3, 3), (1, 1), (1, 1), (1, 1), 2, 1),
             ("conv2d_groups_odd",  (2, 6, 8, 8),      9, (3, 3), (2, 2), (1, 1), (1, 1), 3, 0),
             ("conv2d_depthwise",   (2, 16, 9, 9),    16, (3, 3), (1, 1), (1, 1), (1, 1), 16, 1),
             ("conv2d_depthwise_odd", (2, 5, 9, 9),    5, (3, 3), (2, 2), (1, 1), (1, 1), 5, 0)]
    for i, (name, shape, out, kernel, stride, padding, dilation, groups, bias) in enumerate(table):
        rng = np.random.default_rng(100 + i)
        fan_in = shape[1] // groups * kernel[0] * kernel[1]
        inputs = {"x": random(rng, *shape), "weight": random(rng, out, shape[1] // groups, *kernel, scale=fan_in**-0.5)}
        if bias:
            inputs["bias"] = random(rng, out)
        case(name, "conv2d", inputs,
             lambda x, weight, bias=None: F.conv2d(x, weight, bias, stride, padding, dilation, groups),
             rng, kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias)


def linears():
    for i, (name, batch, features, out, bias) in enumerate([("linear", 4, 32, 16, 0), ("linear_bias", 3, 19, 10, 1)]):
        rng = np.random.default_rng(200 + i)
        inputs = {"x": random(rng, batch, features), "weight": random(rng, out, features, scale=features**-0.5)}
        if bias:
            inputs["bias"] = random(rng, out)
        case(name, "linear", inputs, F.linear, rng, bias=bias)
    rng = np.random.default_rng(210)
    inputs = {"x": random(rng, 3, 6, 4, 5), "weight": random(rng, 10, 120, scale=0.1), "bias": random(rng, 10)}
    case("flatten_linear", "flatten_linear", inputs, lambda x, weight, bias: F.linear(x.flatten(1), weight, bias), rng, bias=1)


def batch_norms():
    """relu and add: y = relu(bn(x) + x2); pool: a 2x2 max pool behind it."""
    #        name                   shape           train relu add pool
    table = [("batch_norm",         (4, 16, 5, 6),    1, 0, 0, 0),
             ("batch_norm_odd",     (3, 7, 5, 5),     1, 0, 0, 0),
             ("batch_norm_eval",    (2, 16, 5, 6),    0, 0, 0, 0),
             ("batch_norm_relu",    (4, 16, 6, 6),    1, 1, 0, 0),
             ("batch_norm_relu_odd", (3, 10, 5, 5),   1, 1, 0, 0),
             ("batch_norm_relu_eval", (2, 16, 5, 5),  0, 1, 0, 0),
             ("batch_norm_add_relu", (4, 16, 6, 6),   1, 1, 1, 0),
             ("batch_norm_add_relu_eval", (2, 16, 5, 5), 0, 1, 1, 0),
             ("batch_norm_relu_pool", (4, 16, 6, 4),  1, 1, 0, 1),
             ("batch_norm_relu_pool_odd", (3, 10, 4, 6), 1, 1, 0, 1),
             ("batch_norm_relu_pool_remainder", (2, 16, 5, 6), 1, 1, 0, 1),
             ("batch_norm_relu_pool_eval", (2, 16, 4, 4), 0, 1, 0, 1),
             ("batch_norm_relu_half", (3, 10, 5, 5),  1, 1, 0, 0),
             ("batch_norm_add_relu_half", (4, 16, 6, 6), 1, 1, 1, 0),
             ("batch_norm_relu_pool_half", (3, 10, 4, 6), 1, 1, 0, 1)]
    eps, momentum = 1e-5, 0.1
    for i, (name, shape, train, relu, add, pool) in enumerate(table):
        channels = shape[1]
        for attempt in range(1000):
            rng = np.random.default_rng(300 + i + 1000 * attempt)
            inputs = {"x": random(rng, *shape) + random(rng, 1, channels, 1, 1),
                      "weight": random(rng, channels, scale=0.3) + np.float32(1), "bias": random(rng, channels, scale=0.3)}
            if add:
                inputs["x2"] = random(rng, *shape)
            if name.endswith("_half"):
                inputs |= {k: half(inputs[k]) for k in ("x", "x2") if k in inputs}
            before = {"running_mean": random(rng, channels, scale=0.5),
                      "running_var": rng.uniform(0.5, 2, channels).astype(np.float32)}
            after, smallest = {}, [0.0]

            def forward(x, weight, bias, x2=None):
                mean, var = (torch.from_numpy(before[k]).double() for k in before)
                y = F.batch_norm(x, mean, var, weight, bias, bool(train), momentum, eps)
                if train:
                    after.update(running_mean_after=mean, running_var_after=var)
                y = y if x2 is None else y + x2
                smallest[0] = float(y.detach().abs().min())
                if pool:
                    windows = F.unfold(y.detach().reshape(-1, 1, *y.shape[2:]), 2, stride=2).sort(1).values
                    smallest[0] = min(smallest[0], float((windows[:, 3] - windows[:, 2]).min()))
                y = F.relu(y) if relu else y
                return F.max_pool2d(y, 2) if pool else y

            forward(*(torch.from_numpy(v).double() for v in inputs.values()))
            if not relu or smallest[0] > 1e-4:
                break
        else:
            raise SystemExit(f"{name}: no draw keeps clear of ReLU's kink")
        case(name, "batch_norm", inputs, forward, rng, lambda _: before | after, train=train, relu=relu, add=add, pool=pool,
             eps=eps, momentum=momentum)


def elementwise():
    rng = np.random.default_rng(400)
    case("relu", "relu", {"x": separated(rng, 2, 9, 5, 5)}, F.relu, rng)
    case("gelu", "gelu", {"x": random(rng, 2, 9, 5, 5, scale=2)}, F.gelu, rng, approximate="none")
    for name, channels in (("add", 16), ("add_odd", 7)):
        inputs = {"x": random(rng, 2, channels, 5, 4), "x2": random(rng, 2, channels, 5, 4)}
        case(name, "add", inputs, lambda x, x2: x + x2, rng, relu=0)
    for name, channels in (("add_relu", 16), ("add_relu_odd", 7)):
        total, x = separated(rng, 2, channels, 5, 4), random(rng, 2, channels, 5, 4)
        case(name, "add", {"x": x, "x2": total - x}, lambda x, x2: F.relu(x + x2), rng, relu=1)
    for name, widths in (("concat", (16, 32)), ("concat_odd", (5, 16, 7))):
        inputs = {"x" if i == 0 else f"x{i + 1}": random(rng, 2, w, 5, 4) for i, w in enumerate(widths)}
        case(name, "concat", inputs, lambda *xs: torch.cat(xs, 1), rng)


def pools():
    #        name                  shape            kernel  stride  padding
    table = [("2x2",               (2, 16, 8, 8),   (2, 2), (2, 2), (0, 0)),
             ("overlapping",       (2, 16, 9, 9),   (3, 3), (2, 2), (1, 1)),
             ("odd",               (3, 5, 7, 8),    (3, 2), (2, 1), (1, 0)),
             ("remainder",         (2, 7, 9, 7),    (2, 2), (2, 2), (0, 0))]
    for i, (name, shape, kernel, stride, padding) in enumerate(table):
        rng = np.random.default_rng(500 + i)
        attributes = {"kernel": kernel, "stride": stride, "padding": padding}
        case(f"max_pool_{name}", "max_pool", {"x": separated(rng, *shape)},
             lambda x: F.max_pool2d(x, kernel, stride, padding), rng, **attributes)
        for count in (0, 1) if any(padding) else (1,):
            case(f"avg_pool_{name}" + ("" if count else "_exclude_pad"), "avg_pool", {"x": random(rng, *shape)},
                 lambda x: F.avg_pool2d(x, kernel, stride, padding, count_include_pad=bool(count)), rng,
                 count_include_pad=count, **attributes)
        if name != "remainder":  # one of two equals in a window takes the gradient: the first
            case(f"max_pool_{name}_half", "max_pool", {"x": half(random(np.random.default_rng(540 + i), *shape))},
                 lambda x: F.max_pool2d(x, kernel, stride, padding), np.random.default_rng(545 + i), **attributes)
    rng = np.random.default_rng(550)
    for name, channels in (("global_avg_pool", 32), ("global_avg_pool_odd", 11)):
        case(name, "global_avg_pool", {"x": random(rng, 2, channels, 7, 5)}, lambda x: F.adaptive_avg_pool2d(x, 1), rng)


def losses():
    """y is the sum over samples of weight * loss, per_sample each term of it, dx the gradient of y."""
    #        name                      classes smoothing ignore weights
    table = [("cross_entropy",           10, 0.0, -100, 0),
             ("cross_entropy_smoothing", 10, 0.1, -100, 0),
             ("cross_entropy_ignore",    10, 0.0, 255, 0),
             ("cross_entropy_weights",   17, 0.0, -100, 1),
             ("cross_entropy_all",       17, 0.2, -100, 1)]
    for i, (name, classes, smoothing, ignore, weighted) in enumerate(table):
        rng = np.random.default_rng(600 + i)
        batch = 6
        x = random(rng, batch, classes, scale=3)
        x[0] += 80  # a shift that a softmax without the maximum subtracted would overflow on
        labels = rng.integers(0, classes, batch).astype(np.int32)
        if "ignore" in name or "all" in name:
            labels[[1, 4]] = ignore
        sample_weight = rng.uniform(0.25, 2, batch).astype(np.float32)
        if weighted:
            sample_weight[2] = 0
        leaf = torch.from_numpy(x).double().requires_grad_()
        terms = F.cross_entropy(leaf, torch.from_numpy(labels).long(), reduction="none", ignore_index=ignore,
                                label_smoothing=smoothing)
        if weighted:
            terms = terms * torch.from_numpy(sample_weight).double()
        terms.sum().backward()
        tensors = {"x": x, "labels": labels, "y": terms.sum(), "per_sample": terms, "dx": leaf.grad}
        if weighted:
            tensors["sample_weight"] = sample_weight
        save(name, "softmax_cross_entropy", tensors, label_smoothing=smoothing, ignore_index=ignore, weights=weighted)


if __name__ == "__main__":
    torch.manual_seed(0)
    OUT.mkdir(exist_ok=True)
    for make in (convolutions, linears, batch_norms, elementwise, pools, losses):
        make()
    files = sorted(OUT.glob("*.safetensors"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files):,} bytes in {OUT}")
