"""Pack tokens as bytes, four to a token, so that common beginnings are found by memcmp and have a short name.

The name of a beginning is a digest of 12 bytes; files on disk compare the tokens themselves as well.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence

WIDTH = array("I").itemsize
_DIGEST_BYTES = 12


def pack(tokens: Sequence[int]) -> bytes:
    """Return the tokens as bytes."""
    return array("I", tokens).tobytes()


def count_common(one: bytes, other: bytes) -> int:
    """Count the complete tokens that both begin with: a binary search over memcmp."""
    low, high = 0, min(len(one), len(other)) // WIDTH
    if one[: high * WIDTH] == other[: high * WIDTH]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * WIDTH : middle * WIDTH] == other[low * WIDTH : middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def hash_beginnings(packed: bytes, lengths: Iterable[int]) -> dict[int, str]:
    """Return the name of each beginning that has so many tokens, of those that there are. One pass over the bytes."""
    digest, done, names = hashlib.blake2b(digest_size=_DIGEST_BYTES), 0, {}
    for length in sorted(set(lengths)):
        if length > len(packed) // WIDTH:
            break
        digest.update(packed[done * WIDTH : length * WIDTH])
        done = length
        names[length] = digest.copy().hexdigest()
    return names
