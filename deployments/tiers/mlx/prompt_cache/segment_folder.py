"""Manage the folder of one model's segments, below a root that all models and replicas of the machine share.

    <root>/<key>/s0-2100-<nothing>-<A>.safetensors         tokens 0 to 2100; A names the beginning of 2,100 tokens
    <root>/<key>/s2100-3000-<A>-<B>.safetensors            the next turn: what it added

Segments of different sessions join wherever they meet. A cache that can't be cut is written complete (`w`). `key`
stands for the model and the API key. A file that is gone is a miss, and two who write the same write the same name. Use
touches a file's time, earlier parts later, so that `sweep` removes the ends first. Invariants:
- Nothing below the root outside the models' own folders is touched, nor anything that a link leads to.
- A segment serves its own tokens and model only: head and checksum decide, not the name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deployments.tiers.mlx.prompt_cache.segment_file import (
    PART,
    SUFFIX,
    Damaged,
    Segment,
    SegmentHead,
    Tensor,
    open_segment,
    read_head,
    remove_if_orphan,
    write_segment,
)
from deployments.tiers.packed_tokens import WIDTH, count_common, hash_beginnings

_LOG = logging.getLogger(__name__)

_AGE_MAX_S = 14 * 86400.0
TOKENS_MIN = 32  # fewer aren't worth a file
_SPACING_TOKENS = 256  # of the segments that one prompt is cut into
_LOOKED_INTO_MAX = 64  # segments that a prompt may leave in their middle: so many are read, the latest
_DISK_BYTES_MAX, _DISK_SHARE = 4 << 30, 10
_FREE_MIN_BYTES = 512 << 20  # left on the disk for others
_NAME = re.compile(r"([sw])(\d{1,9})-(\d{1,9})-([0-9a-f]*)-([0-9a-f]+)" + re.escape(SUFFIX))

_FOLDER = re.compile(r"[0-9a-f]{32}")
_STUCK_MAX = 256  # files that can't be removed: where there are more, the folder isn't used any more
_CLOCK_S = 60.0  # a time so far ahead is another clock's

# Makes the tensors for the tokens from one place up to another.
_Stretch = Callable[[int, int], Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class _Name:
    """What a file's name says: the tokens from `start` to `end`, behind the beginning `before`, up to `after`."""

    complete: bool
    start: int
    end: int
    before: str
    after: str
    file: str


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """What of a file is used: the tokens from `begin` to `end`, counted from the prompt's."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class FoundSegments:
    """Which files hold the beginning of a prompt, in order, and how many tokens and bytes that is."""

    parts: tuple[SegmentPart, ...] = ()
    tokens: int = 0
    nbytes: int = 0

    def shorten(self, tokens: int) -> FoundSegments:
        """Return it with at most so many tokens; nothing where it can't be cut."""
        if tokens >= self.tokens:
            return self
        parts = tuple(
            SegmentPart(one.file, one.begin, min(one.end, tokens)) for one in self.parts if one.begin < tokens
        )
        if tokens <= 0 or self.parts[0].file.startswith("w"):
            return FoundSegments()
        return FoundSegments(parts, tokens, self.nbytes * tokens // self.tokens)


class SegmentFolder:
    """See the module. Any thread: all that it knows is on the disk, but for the files that can't be removed."""

    def __init__(self, root: Path, key: str, *, bytes_max: int) -> None:
        self._root, self._key, self._folder = root, key, root / key[:32]
        self._bytes_max, self._stuck = bytes_max, set[str]()

    @staticmethod
    def choose_bytes(root: Path) -> int:
        """Choose how much of the disk prompts may have: a tenth of what is free, with what they have."""
        there = next(folder for folder in (root, *root.parents) if folder.exists())
        return min(_DISK_BYTES_MAX, (shutil.disk_usage(there).free + _count_bytes(root)) // _DISK_SHARE)

    def of(self, owner: str) -> SegmentFolder:
        """Return the folder of an API key's segments, of the same model. Without a key (""), this one."""
        if not owner:
            return self
        key = hashlib.sha256(f"{self._key}\n{owner}".encode()).hexdigest()
        return SegmentFolder(self._root, key, bytes_max=self._bytes_max)

    def find(self, tokens: bytes) -> FoundSegments:
        """Find how much of the prompt is here. Opens few files, and reads the tensors of none."""
        names = list(self._list())
        hashes = hash_beginnings(tokens, (at for one in names for at in (one.start, one.end)))
        complete = [one for one in names if one.complete and hashes.get(one.end) == one.after]
        if complete:
            best = max(complete, key=lambda one: one.end)
            return FoundSegments(
                (SegmentPart(best.file, 0, best.end),), best.end, _read_use(self._folder / best.file)[1]
            )
        return self._join([one for one in names if not one.complete and hashes.get(one.start) == one.before], tokens)

    def open(self, found: FoundSegments, tokens: bytes, *, cancelled: Callable[[], bool]) -> list[Segment] | None:
        """Check and map the files; None where one of them can't be used, which is removed. Raises `Cancelled`."""
        segments: list[Segment] = []
        for part in found.parts:
            try:
                segment = open_segment(self._folder / part.file, cancelled=cancelled)
                self._check(segment.head, part, tokens)
                if segment.head.form != (segments or [segment])[0].head.form:
                    raise Damaged("it has another form than those that it belongs to")
            except FileNotFoundError:
                return None
            except (Damaged, OSError) as error:
                self._discard(part.file, error)
                return None
            segments.append(segment)
        self._touch(found)
        return segments

    def save(
        self,
        tokens: bytes,
        form: str,
        stretch: _Stretch,
        *,
        token_bytes: int,
        cuts: Sequence[int] | None,
        cancelled: Callable[[], bool],
    ) -> int:
        """Write what isn't here yet, with files from `cuts` on; return the bytes. Raises OSError and `Cancelled`."""
        count, found = len(tokens) // WIDTH, self.find(tokens)
        here = found.tokens if cuts is not None or found.tokens == count else 0
        self._touch(found)
        if count - here < TOKENS_MIN or token_bytes * count > self._bytes_max:
            return 0
        self._prepare()
        self.sweep(room_bytes=token_bytes * (count - here))
        if shutil.disk_usage(self._root).free < token_bytes * (count - here) + _FREE_MIN_BYTES:
            _LOG.warning("the disk is nearly full: the prompts computed here are not kept on it")
            return 0
        places = _space([here, *sorted(cut for cut in cuts or () if here < cut < count), count])
        names, written, parts = hash_beginnings(tokens, places), 0, list(found.parts)
        for begin, end in itertools.pairwise(places):
            head = SegmentHead(self._key, begin, names[begin], tokens[begin * WIDTH : end * WIDTH], form)
            kind = "w" if cuts is None else "s"
            file = f"{kind}{begin}-{end}-{names[begin]}-{names[end]}{SUFFIX}"
            written += write_segment(self._folder / file, head, stretch(begin, end), cancelled=cancelled)
            parts.append(SegmentPart(file, begin, end))
        self._touch(FoundSegments(tuple(parts)))
        self.sweep()
        return written

    def discard(self, found: FoundSegments, error: Exception) -> None:
        """Remove files that turned out to be of no use."""
        for part in found.parts:
            self._discard(part.file, error)

    def sweep(self, room_bytes: int = 0) -> None:
        """Remove what is too old, what is too much with `room_bytes` more, and what killed writers left."""
        try:
            with os.fdopen(os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT, 0o600), "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._sweep(room_bytes)
        except OSError:  # somebody else is at it, or there is no folder
            return

    def _sweep(self, room_bytes: int) -> None:
        for folder in _list_folders(self._root):
            for part in folder.glob(f"{PART}*"):
                remove_if_orphan(part)
        now_s = time.time()
        oldest_first = sorted(_list_segments(self._root))
        # A time in the future, behind a clock that went back, would outlive all that is used from now on.
        ahead = [path for used_s, _, path in oldest_first if used_s > now_s + _CLOCK_S]
        _set_used(reversed(ahead), int(now_s * 1e9))
        total = sum(size for _, size, _ in oldest_first) + room_bytes
        for used_s, size, path in oldest_first:
            if total <= self._bytes_max and now_s - used_s <= _AGE_MAX_S:
                continue
            with contextlib.suppress(OSError):  # what can't be removed keeps nothing else here
                path.unlink(missing_ok=True)
                total -= size
        for folder in _list_folders(self._root):
            if folder != self._folder:
                with contextlib.suppress(OSError):  # it isn't empty
                    folder.rmdir()

    def _prepare(self) -> None:
        if self._folder.is_symlink():
            raise OSError(errno.ELOOP, "a link stands where the folder should be", str(self._folder))
        for folder in (self._root, self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                folder.chmod(0o700)

    def _list(self) -> Iterator[_Name]:
        try:
            files = os.listdir(self._folder)
        except OSError:  # nobody has written anything yet
            return
        if len(self._stuck) >= _STUCK_MAX:
            return
        for file in files:
            if file in self._stuck:
                continue
            said = _NAME.fullmatch(file)
            if said is not None:
                kind, start, end, before, after = said.groups()
                yield _Name(kind == "w", int(start), int(end), before, after, file)
            elif file.endswith(SUFFIX):
                self._discard(file, Damaged("its name isn't one of this server's"))

    def _join(self, names: Sequence[_Name], tokens: bytes) -> FoundSegments:
        """Go as far as the segments reach; a segment that fits in part ends where its tokens differ."""
        hashes = hash_beginnings(tokens, (one.end for one in names))
        fits = {one.file: one.end for one in names if hashes.get(one.end) == one.after}
        parts: list[SegmentPart] = []
        covered = nbytes = 0
        while True:
            ahead = [one for one in names if one.start <= covered < one.end]
            fits |= {one.file: self._look_into(one, tokens) for one in self._choose_unread(ahead, fits)}
            best = max(ahead, key=lambda one: fits.get(one.file, 0), default=None)
            if best is None or fits.get(best.file, 0) <= covered:
                return FoundSegments(tuple(parts), covered, nbytes)
            reached = fits[best.file]
            nbytes += _read_use(self._folder / best.file)[1] * (reached - covered) // (best.end - best.start)
            parts.append(SegmentPart(best.file, covered, reached))
            covered = reached

    def _choose_unread(self, ahead: Sequence[_Name], fits: dict[str, int]) -> list[_Name]:
        """Choose the segments to look into: those that may reach farther than what is known to fit."""
        known = max((fits.get(one.file, 0) for one in ahead), default=0)
        unread = [one for one in ahead if one.file not in fits and one.end > known]
        if len(unread) > _LOOKED_INTO_MAX:
            unread = sorted(unread, key=lambda one: _read_use(self._folder / one.file))[-_LOOKED_INTO_MAX:]
        return unread

    def _look_into(self, name: _Name, tokens: bytes) -> int:
        try:
            head = read_head(self._folder / name.file)
        except FileNotFoundError:
            return 0
        except (Damaged, OSError) as error:
            self._discard(name.file, error)
            return 0
        return name.start + count_common(head.tokens, tokens[name.start * WIDTH :])

    def _check(self, head: SegmentHead, part: SegmentPart, tokens: bytes) -> None:
        if head.key != self._key:
            raise Damaged("it is another model's")
        held = head.tokens[: (part.end - head.start) * WIDTH]
        if head.start > part.begin or held != tokens[head.start * WIDTH : part.end * WIDTH]:
            raise Damaged("it holds other tokens than its name says")
        if head.before != hash_beginnings(tokens, [head.start]).get(head.start):
            raise Damaged("it belongs behind another beginning")

    def _touch(self, found: FoundSegments) -> None:
        """Note the use: the first part as the latest."""
        _set_used([self._folder / part.file for part in found.parts], time.time_ns())

    def _discard(self, file: str, error: Exception) -> None:
        outcome = "is removed"
        try:
            (self._folder / file).unlink(missing_ok=True)
        except OSError as refusal:
            self._stuck.add(file)
            outcome = f"is passed by, since it can't be removed: {refusal.strerror}"
        _LOG.warning("a stored prompt can't be used and %s: %s (%s)", outcome, file, error)


def _count_bytes(root: Path) -> int:
    """Count the bytes of the segments of all models."""
    return sum(size for _, size, _ in _list_segments(root))


def _space(places: Sequence[int]) -> list[int]:
    """Leave out places that would make a segment too short; the first and the last stay."""
    first, *between, last = places
    out = [first]
    for place in between:
        if place - out[-1] >= _SPACING_TOKENS and last - place >= TOKENS_MIN:
            out.append(place)
    return [*out, last]


def _list_segments(root: Path) -> Iterator[tuple[float, int, Path]]:
    for folder in _list_folders(root):
        for path in folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                found = path.lstat()
                yield found.st_mtime, found.st_size, path


def _list_folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return [
                Path(one.path) for one in entries if _FOLDER.fullmatch(one.name) and one.is_dir(follow_symlinks=False)
            ]
    except OSError:  # nobody has written anything yet
        return []


def _set_used(paths: Iterable[Path], now_ns: int) -> None:
    """Set the time of their last use to the present, the first one's as the latest."""
    for number, path in enumerate(paths):
        used_ns = now_ns - number * 1_000_000
        with contextlib.suppress(OSError):
            os.utime(path, ns=(used_ns, used_ns), follow_symlinks=False)


def _read_use(path: Path) -> tuple[float, int]:
    """Return when a file was last used, and its bytes; zeros where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return 0.0, 0
    return found.st_mtime, found.st_size
