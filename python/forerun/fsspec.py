"""Images for fsspec: ``forerun://a/b::file:///data/x.sqsh``, ``forerun://a/b::s3://bucket/x.sqsh``.

The part after ``::`` names the image, in any file system that fsspec knows. forerun itself fetches images on
``https://`` and ``s3://`` servers, and caches the chunks that were read. If options for that protocol are given,
fsspec's file system is used instead.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Dict, List, Optional

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from ._image import Image, open as _open

#: Protocols that the library itself opens.
_OWN = ("http", "https", "s3", "oci")


class ForerunFileSystem(AbstractFileSystem):
    """The files of one image, read-only. `fo` is a path, an address, an `Image` or a file object."""

    protocol = "forerun"
    root_marker = ""
    cachable = False

    def __init__(
        self,
        fo: Any = "",
        target_protocol: Optional[str] = None,
        target_options: Optional[dict] = None,
        options: Optional[dict] = None,
        **kwargs,
    ) -> None:
        """Opens the image; `options` are keywords of `forerun.open`."""
        super().__init__(**kwargs)
        self.image = fo if isinstance(fo, Image) else _image(fo, target_protocol, target_options or {}, options or {})

    @classmethod
    def _strip_protocol(cls, path):
        # `forerun://a/b` has no host; everything is the path.
        return super()._strip_protocol(path).lstrip("/")

    def _info(self, path: str, stat) -> Dict[str, Any]:
        return {
            "name": path,
            "size": stat.st_size if stat.kind == "file" else 0,
            "type": {"symlink": "link"}.get(stat.kind, stat.kind),
            "mode": stat.st_mode,
            "uid": stat.st_uid,
            "gid": stat.st_gid,
            "mtime": stat.st_mtime,
            "ino": stat.st_ino,
            "nlink": stat.st_nlink,
        }

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        lstat = self.image.lstat(path)
        if lstat.kind != "symlink":
            return self._info(path, lstat)
        # Like fsspec's local file system: details of the target, and the link's destination.
        try:
            info = self._info(path, self.image.stat(path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            info = self._info(path, lstat)
        return {**info, "islink": True, "destination": self.image.readlink(path)}

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        if self.image.stat(path).kind != "directory":
            infos = [self.info(path)]
        else:
            infos = []
            for entry in self.image.scandir(path):
                name = f"{path}/{entry.name}" if path else entry.name
                infos.append(self.info(name) if entry.is_symlink() else self._info(name, entry.stat()))
        return infos if detail else [info["name"] for info in infos]

    def walk(self, path, *args, followlinks=False, _below=False, **kwargs):
        """Like fsspec's, but follows links to directories only with `followlinks`, or if `path` is one."""
        if _below and not followlinks and self.image.lstat(self._strip_protocol(path)).kind == "symlink":
            return
        yield from super().walk(path, *args, followlinks=followlinks, _below=True, **kwargs)

    def get_file(self, rpath, lpath, **kwargs):
        # `get` of a tree does not follow links to directories, and does not turn them into empty directories.
        path = self._strip_protocol(rpath)
        if self.isdir(path) and self.image.lstat(path).kind == "symlink":
            return
        super().get_file(rpath, lpath, **kwargs)

    def exists(self, path, **kwargs):
        return self.image.exists(self._strip_protocol(path))

    def modified(self, path):
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    created = modified

    def _open(self, path, mode="rb", **kwargs):
        if mode != "rb":
            raise OSError(30, "images are read-only", path)
        return self.image.open(self._strip_protocol(path))

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.image.read(path)
        size = self.image.stat(path).st_size
        start, end = _clamp(start, 0, size), _clamp(end, size, size)
        with self.image.open(path) as file:
            return file.pread(max(end - start, 0), start)

    def cat(self, path, recursive=False, on_error="raise", **kwargs):
        paths = self.expand_path(path, recursive=recursive)
        is_many = len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)
        if not is_many:
            return self.cat_file(paths[0], **kwargs)
        files = [name for name in paths if not self.isdir(name)]
        found = {}
        for name, contents in self.image.read_many(files, in_order=False, errors="return"):
            if not isinstance(contents, OSError):
                found[name] = contents
            elif on_error == "raise":
                raise contents
            elif on_error == "return":
                found[name] = contents
        return found

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("paths, starts and ends are of different lengths")
        wanted: List[Any] = []
        for path, start, end in zip(paths, starts, ends):
            path = self._strip_protocol(path)
            if (start or 0) < 0 or end is None or end < 0:
                try:
                    size = self.image.stat(path).st_size
                except OSError:  # Reading it reports the error.
                    size = 0
                start, end = _clamp(start, 0, size), _clamp(end, size, size)
            wanted.append((path, start or 0, end))
        read = [contents for _, contents in self.image.read_ranges(wanted, errors="return")]
        if on_error == "raise":
            for contents in read:
                if isinstance(contents, OSError):
                    raise contents
        return read

    def _refused(self, path, *args, **kwargs):
        raise OSError(30, "images are read-only", str(path))

    mkdir = makedirs = rmdir = rm_file = _rm = rm = cp_file = mv = touch = pipe_file = _refused


def _clamp(at: Optional[int], default: int, size: int) -> int:
    """Returns an offset, counted from the end if it is negative, within the file."""
    at = default if at is None else at
    return min(max(at + size if at < 0 else at, 0), size)


def _image(fo: Any, protocol: Optional[str], target_options: dict, options: dict) -> Image:
    if not isinstance(fo, (str, os.PathLike)):
        return _open(fo, **options)
    from fsspec.core import split_protocol, url_to_fs  # type: ignore[import-untyped]

    fo = os.fspath(fo)
    if not fo:
        raise ValueError("no image is named: forerun://PATH::file:///IMAGE, or fo=IMAGE")
    protocol = protocol or split_protocol(fo)[0]
    if protocol in (None, "file", "local") and not target_options:
        return _open(split_protocol(fo)[1], **options)
    if protocol in _OWN and not target_options:
        address = fo if "://" in fo else f"{protocol}://{fo}"
        return _open(address, **options)
    fs, path = url_to_fs(fo if "://" in fo else f"{protocol}://{fo}", **target_options)
    return _open(fs.open(path, "rb"), **options)


