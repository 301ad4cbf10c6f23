"""The class Image: its methods that are written in Python."""

from __future__ import annotations

import atexit
import io
import os
import posixpath
from typing import Any, Iterable, Iterator, List, Optional, Tuple

from . import _forerun
from ._file import File
from ._path import ImagePath

#: Memory that read_many takes for contents, in bytes.
MEMORY = 64 << 20


def open(source, **options) -> "Image":
    """Opens an image.

    `source` is a path, an address (``https://``, ``s3://``, ``oci://``), a seekable binary file object, or a list of
    paths and addresses that are shown as one tree, the lowest layer first.

    Keywords, all optional:

    - ``offset``, ``size``: the part of the source that holds the image, in bytes.
    - ``format``: one of `format_names`; by default it is found by content.
    - ``cache``: bytes that decoded blocks may use; ``readahead``: bytes read ahead of a sequential reader;
      ``threads``: threads that read and decode ahead.
    - ``read_limit``: the longest file that `Image.read` reads whole, in bytes; 1 GiB.
    - ``devices``: files that hold data of an EROFS image; ``objects``, ``verity``, ``digest``: for composefs images;
      ``rescue``: reads as much of a damaged exFAT volume as possible.
    - ``cache_dir``, ``cache_limit``, ``mirrors``, ``offline``, ``timeout`` (seconds), ``require_verified``,
      ``ca_file``: for images on servers.

    Raises `Error` if the source cannot be read, and `UnknownFormatError` if it is not an image.
    """
    return Image(source, **options)


class Image(_forerun.Image):
    """An open image. Its methods take paths in the image.

    It is a context manager. Threads may share it; it reads without the interpreter's lock. A forked process opens the
    image again at its first use, and unpickling opens it too.
    """

    def __new__(cls, source, **options):
        self = super().__new__(cls, source, **options)
        self._source, self._options = source, options
        if not hasattr(source, "read"):
            self._source = self.address() if not isinstance(source, list) else source
        return self

    def __enter__(self) -> "Image":
        return self

    def __exit__(self, *_raised) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.format
        return f"<forerun.Image {self.name!r} {state}>"

    def __reduce__(self):
        if hasattr(self._source, "read"):
            raise TypeError("an image in a file object cannot be pickled")
        return (_open_again, (type(self), self._source, self._options))

    def open(
        self,
        path,
        mode: str = "rb",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ):
        """Opens a file for reading, as the builtin `open` does.

        Binary modes return a `File`, an ``io.RawIOBase`` with a buffer; text modes return an ``io.TextIOWrapper``.
        """
        if set(mode) - set("rbt") or "r" not in mode or ("b" in mode and "t" in mode):
            if set(mode) & set("wax+"):
                raise io.UnsupportedOperation("images are opened to read")
            raise ValueError(f"invalid mode: {mode!r}")
        raw = File(self.open_raw(path), os.fsdecode(path))
        if mode in ("r", "rt", "tr"):
            buffered = io.BufferedReader(raw, buffering if buffering > 1 else 128 << 10)
            return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)
        if encoding or errors or newline:
            raise ValueError("binary mode takes no encoding, errors or newline")
        return raw

    def lstat(self, path="/"):
        """Returns metadata as `stat` does, but does not follow a symbolic link in the last component."""
        return self.stat(path, follow_symlinks=False)

    def read_many(
        self,
        paths: Iterable,
        workers: Optional[int] = None,
        *,
        in_order: bool = True,
        memory: int = MEMORY,
        errors: str = "raise",
        progress: Any = None,
    ) -> Iterator[Tuple[Any, bytes]]:
        """Yields ``(path, contents)`` of many files. Several threads read them ahead, in the order of the image.

        Files are yielded in the order of `paths`, or with ``in_order=False`` in the order in which they were read.
        Contents that wait use up to `memory` bytes, or one file. `workers` is the number of threads, by default one
        for each CPU. Up to 32,768 paths are taken ahead.

        An error concerns one file: ``errors="raise"`` raises it in place of that file, and the iterator can continue;
        ``errors="return"`` yields the exception in place of the contents.

        ``progress=True`` shows a progress bar if tqdm is installed.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f"errors={errors!r}: 'raise' or 'return'")
        total = len(paths) if hasattr(paths, "__len__") else None  # type: ignore[arg-type]
        many = self.read_ahead(paths, workers, in_order, memory, errors == "return")
        return _with_bar(many, progress, total)

    def read_ranges(
        self,
        ranges: Iterable[Tuple[Any, int, int]],
        workers: Optional[int] = None,
        *,
        in_order: bool = True,
        memory: int = MEMORY,
        errors: str = "raise",
    ) -> Iterator[Tuple[Any, bytes]]:
        """Yields ``((path, start, end), contents)`` of parts of files, as `read_many` does for whole files."""
        if errors not in ("raise", "return"):
            raise ValueError(f"errors={errors!r}: 'raise' or 'return'")
        return self.read_ahead(ranges, workers, in_order, memory, errors == "return")

    def walk(self, top="/", *, onerror=None) -> Iterator[Tuple[str, List[str], List[str]]]:
        """Walks a tree top-down as `os.walk` does: yields a path, the names of directories, and the other names.

        Does not enter directories that the caller removes from the list, and does not follow symbolic links. `entries`
        is faster, and yields objects with the metadata.
        """
        stack = [os.fsdecode(top)]
        while stack:
            path = stack.pop()
            dirs: List[str] = []
            others: List[str] = []
            links = set()
            try:
                for entry in self.scandir(path):
                    try:
                        is_dir = entry.is_dir()
                    except OSError:  # A link that loops, which os.walk lists among the others.
                        is_dir = False
                    (dirs if is_dir else others).append(entry.name)
                    if is_dir and entry.is_symlink():
                        links.add(entry.name)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            yield path, dirs, others
            stack.extend(posixpath.join(path, name) for name in reversed(dirs) if name not in links)

    def path(self, path="/") -> ImagePath:
        """Returns a path as an object: an ``importlib.resources.abc.Traversable``, similar to a ``pathlib.Path``."""
        return ImagePath(self, os.fsdecode(path))

    def extract(
        self,
        directory,
        paths: Iterable = (),
        *,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        strip_components: int = 0,
        force: bool = False,
        threads: int = 0,
        progress: Any = None,
    ) -> dict:
        """Extracts `paths` with everything below them, or the whole image, into `directory`, and creates it if needed.

        `paths`, `include` and `exclude` are one value or several; the latter two are patterns (``*.txt``, ``usr/**``).
        Nothing is ever written outside of the directory, and existing files are replaced only with `force`. Returns
        counts, with ``failures`` (texts) and ``losses`` (owners, devices and attributes that could not be set).
        ``progress=True`` shows a progress bar if tqdm is installed; a function is called with the bytes done and the
        total.
        """
        with _report(progress) as report:
            return self.extract_to(
                directory,
                _listed(paths),
                _listed(include),
                _listed(exclude),
                strip_components,
                force,
                threads,
                report,
            )

    def tar(
        self,
        target,
        paths: Iterable = (),
        *,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        progress: Any = None,
    ) -> int:
        """Writes a tar archive to a new file, or to a binary file object. Returns the number of entries.

        A new file is removed if writing fails.

        Raises the error of a file that cannot be read, and at the end an `Error` if entries were left out.
        """
        with _report(progress) as report:
            entries, failures = self.tar_to(
                target, _listed(paths), _listed(include), _listed(exclude), report
            )
        if failures:
            import errno

            from ._errors import Error

            error = Error(errno.EIO, f"{len(failures)} entries are left out: {failures[0]}")
            error.image = self.name
            raise error
        return entries

    def mount(self, directory, options: str = "ro,auto_unmount"):
        """Mounts the image on a directory; ``with image.mount(directory) as path:`` unmounts at the end.

        This process serves the mount, which ends with it. `options` are those of ``forerun mount -o``; with
        ``auto_unmount``, another process unmounts the image if this one is killed. Without root, fusermount3 must be
        installed.
        """
        words = options.split(",")
        wanted = [word for word in words if word != "auto_unmount"]
        mount = self.mount_on(os.fspath(directory), ",".join(wanted))
        _unmount_at_exit(mount)
        if len(wanted) < len(words):
            _watch(mount, os.path.realpath(directory))
        return mount

    def tree(self, path="/", *, depth: int = 2, most: int = 200):
        """Returns the tree below a path for printing or a notebook, with up to `depth` levels and `most` lines."""
        from ._show import Tree

        return Tree(self, os.fsdecode(path), depth, most)

    def _repr_html_(self) -> str:
        from ._show import image_html

        return image_html(self)


def _listed(given) -> list:
    """Converts one or several paths or patterns to a list. A string is one path, not its letters."""
    return [given] if isinstance(given, (str, bytes, os.PathLike)) else list(given)


def _open_again(cls, source, options) -> Image:
    return cls(source, **options)


def pack(source, image, **options) -> dict:
    """Packs the directory `source` into the new file `image`. Returns facts about the image.

    Keywords: ``format`` (one of `packable_formats`; ``squashfs``), ``compressor``, ``level``, ``block_size``,
    ``threads``, ``exclude`` (patterns), ``xattrs``, ``latest`` (later modification times are set to this, in seconds
    since 1970), ``replace`` (an existing image). The file appears under its name only when it is complete and synced.
    """
    return _forerun.pack(os.fspath(source), os.fspath(image), **options)


def _with_bar(iterator, progress, total):
    if not progress:
        return iterator
    tqdm = _tqdm()
    return iterator if tqdm is None else tqdm(iterator, total=total, unit="file")


def _tqdm():
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return None
    return tqdm


class _report:
    """A context manager that returns a function to report progress to."""

    def __init__(self, progress) -> None:
        self._call = progress if callable(progress) else None
        self._bar: Any = None
        if progress is True:
            tqdm = _tqdm()
            if tqdm is not None:
                self._bar = tqdm(unit="B", unit_scale=True)

    def __enter__(self):
        return self._call if self._bar is None else self._advance

    def _advance(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def __exit__(self, *_raised) -> None:
        if self._bar is not None:
            self._bar.close()


_mounted: list = []


def _unmount_at_exit(mount) -> None:
    """Records a mount, to unmount it at exit: otherwise the process would leave a dead mountpoint behind."""
    if not _mounted:
        atexit.register(_unmount_all, os.getpid())
    # Drop mounts that were unmounted, but keep one entry, so that the handler is registered only once.
    _mounted[1:] = [other for other in _mounted[1:] if other.mounted]
    _mounted.append(mount)


# Waits for the end of its input, which means that the serving process has ended, and unmounts a dead mount.
_WATCHDOG = """
import errno, os, subprocess, sys
sys.stdin.buffer.read()
try:
    os.statvfs(sys.argv[1])
except OSError as error:
    if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
        program = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.call([*program, "--", sys.argv[1]])
"""

_watchdogs: list = []


def _watch(mount, directory) -> None:
    """Starts a process that unmounts the directory if this process is killed."""
    import subprocess
    import sys

    for other, watchdog in _watchdogs:
        if not other.mounted:
            watchdog.communicate()
    _watchdogs[:] = [pair for pair in _watchdogs if pair[0].mounted]
    watchdog = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCHDOG, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    _watchdogs.append((mount, watchdog))


def _unmount_all(process: int) -> None:
    if os.getpid() != process:
        return
    while _mounted:
        try:
            _mounted.pop().unmount()
        except OSError:
            pass
    while _watchdogs:
        _watchdogs.pop()[1].communicate()

