"""The versioned hash behind position-keyed sampling (Gumbel-max with keyed noise).

The noise of a token depends on (seed, request id, repeat, output position, token id)
and on nothing else: not on the batch, the order, the neighbours or how many rows a
step verified. Written with operators that numpy int64 arrays and torch int64 tensors
share, so that decoders and referee use the same definition.

Mixer: SplitMix64's finaliser (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
number generators"), in two's complement with logical shifts made by masking.
"""

from __future__ import annotations

import hashlib
from typing import Any

VERSION = 1

_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB
_MASK52 = (1 << 52) - 1


def _signed(value: int) -> int:
    """The same 64 bits, read as two's complement."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def stream_key(seed: int, request_id: str, repeat: int) -> int:
    """Return the 64-bit key of one output's noise, as a signed integer."""
    text = f"gate-noise/{VERSION}\x1f{seed}\x1f{request_id}\x1f{repeat}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def mix_int(value: int) -> int:
    """Mix one 64-bit integer: the scalar twin of :func:`mix`."""
    value &= (1 << 64) - 1
    value = ((value ^ (value >> 30)) * _MIX1) & ((1 << 64) - 1)
    value = ((value ^ (value >> 27)) * _MIX2) & ((1 << 64) - 1)
    return _signed(value ^ (value >> 31))


def mix(x: Any) -> Any:
    """Mix int64 elementwise; shapes stay. Overflow wraps, as both libraries do."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(_MIX1)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(_MIX2)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def uniforms(key: int, position: int, token_ids: Any) -> Any:
    """Uniforms in (0, 1), float64, one per token id (int64, any shape)."""
    base = mix_int(key + (position + 1) * _GOLDEN)
    bits = mix(mix(token_ids * _signed(_GOLDEN) + base) + base)
    return read_unit(bits)


def read_unit(bits: Any) -> Any:
    """Uniform in (0, 1) of 64 random bits: the middles of 2^52 cells, each exact in float64."""
    cell = (bits >> 12) & _MASK52
    exact = cell.double() if hasattr(cell, "double") else cell.astype("float64")
    return (exact + 0.5) / float(1 << 52)  # torch alone would make int64 + 0.5 a float32


def gumbel(key: int, position: int, token_ids: Any) -> Any:
    """Standard Gumbel noise, float64, one per token id: -log(-log(u))."""
    u = uniforms(key, position, token_ids)
    if hasattr(u, "log"):  # a torch tensor
        return -(-u.log()).log()
    import numpy as np  # noqa: PLC0415 - torch users need not pay for it

    return -np.log(-np.log(u))
