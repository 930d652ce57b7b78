"""The digest of weights, and the versions of the libraries that run them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from deployments.models.provenance import versions, weights_sha256


def test_the_digest_of_several_files_is_that_of_their_listing(tmp_path: Path) -> None:
    """Law: one file is its own sha256; several are `sha256sum *.safetensors | sha256sum`; a hub's link is its blob."""
    (tmp_path / "a.safetensors").write_bytes(b"a")
    assert weights_sha256(tmp_path) == hashlib.sha256(b"a").hexdigest()
    blob = tmp_path / ("b" * 64)
    blob.write_bytes(b"never read")
    (tmp_path / "b.safetensors").symlink_to(blob)
    listing = f"{hashlib.sha256(b'a').hexdigest()}  a.safetensors\n{'b' * 64}  b.safetensors\n"
    assert weights_sha256(tmp_path) == hashlib.sha256(listing.encode()).hexdigest()


def test_the_versions_are_those_of_the_packages() -> None:
    """Law: what the status says is what is imported."""
    import mlx.core as mx
    import mlx_lm

    said: dict[str, Any] = versions()
    assert said == {"mlx": mx.__version__, "mlx-lm": mlx_lm.__version__}
