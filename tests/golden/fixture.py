"""Writes safetensors files whose bytes depend on their contents alone: the library stores metadata in no fixed order."""
import json

from safetensors.numpy import save


def save_fixture(path, tensors, metadata):
    raw = save(tensors, metadata=metadata)
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    assert len(text) == size
    path.write_bytes(raw[:8] + text + raw[8 + size:])
