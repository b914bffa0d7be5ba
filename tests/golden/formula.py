"""Deterministic numbers that formula.h reproduces bit for bit, so that whole-network goldens need no stored weights.

Every float32 below comes from one 32-bit hash by steps that IEEE 754 rounds the same everywhere. The C++ twin is
formula.h; tests/unit/models/golden_formula_test.cpp holds the two together.
"""
import numpy as np


def key(name: str) -> int:
    """FNV-1a, 32 bits, of the name's bytes."""
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return h


def words(name: str, count: int) -> np.ndarray:
    """The name's stream: MurmurHash3's finaliser over key + i * 0x9E3779B9, modulo 2^32."""
    with np.errstate(over="ignore"):
        h = np.uint32(key(name)) + np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h


def units(name: str, count: int) -> np.ndarray:
    """float32 in [-1, 1), multiples of 2^-23: exact."""
    return ((words(name, count) >> np.uint32(8)).astype(np.int64) - (1 << 23)).astype(np.float32) * np.float32(2.0**-23)


def parameter(name: str, shape, norm: bool) -> np.ndarray:
    """Weights: units * sqrt(6 / fan_in), biases of linear layers: units / 8. Batch norm: weight 0.625 + units / 8, bias
    +-(1 + units / 4), positive for 3 of 4 channels: that keeps ReLU's kink far from most activations."""
    u = units(name, int(np.prod(shape)))
    one = np.float32(1)
    if norm and name.endswith("weight"):
        u = np.float32(0.625) + u * np.float32(0.125)
    elif norm:
        sign = np.where(words(name, len(u)) % 4 == 0, np.float32(-1), one)
        u = sign * (one + u * np.float32(0.25))
    elif len(shape) == 1:
        u = u * np.float32(0.125)
    else:
        fan_in = int(np.prod(shape[1:]))
        u = u * np.float32(np.sqrt(np.float64(6) / np.float64(fan_in)))
    return u.reshape(shape)


def sample_indices(name: str, count: int, samples: int) -> np.ndarray:
    """Which entries of a gradient are stored."""
    return words("sample/" + name, samples).astype(np.int64) % count


def projection(name: str, values: np.ndarray) -> float:
    """The dot product of a gradient with units("project/" + name), in double: every entry counts."""
    return float(np.dot(values.reshape(-1).astype(np.float64), units("project/" + name, values.size).astype(np.float64)))


def images(name: str, batch: int, shape, labels) -> np.ndarray:
    """[batch, *shape]: noise plus a pattern of the label, so that there is something to learn."""
    size = int(np.prod(shape))
    noise = units("images/" + name, batch * size).reshape(batch, size)
    pattern = np.stack([units("pattern/%d" % k, size) for k in labels])
    return (noise + pattern).reshape(batch, *shape)


def labels(name: str, batch: int, classes: int) -> np.ndarray:
    return (words("labels/" + name, batch) % np.uint32(classes)).astype(np.int32)
