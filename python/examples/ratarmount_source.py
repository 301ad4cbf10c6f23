"""An image as a mount source of ratarmountcore: with other archives and folders in one tree, or below ratarmount.

    source = ForerunMountSource("x.sqsh")
    with source.open(source.lookup("/etc/hosts")) as file: ...

    UnionMountSource([FolderMountSource("changes"), ForerunMountSource("x.sqsh")])

Works with ratarmountcore 0.11. Metadata and contents are read when they are asked for: there is no index to make.
"""

from __future__ import annotations

import posixpath
from typing import IO, Any, Dict, Optional

from ratarmountcore.mountsource import FileInfo, MountSource

import forerun


class ForerunMountSource(MountSource):
    """The files of an image: a path, an address, a file object, or an open `forerun.Image`."""

    def __init__(self, image, **options) -> None:
        """`options` are keywords of `forerun.open`."""
        self._is_ours = not isinstance(image, forerun.Image)
        self.image = forerun.open(image, **options) if self._is_ours else image

    @staticmethod
    def _absolute(path: str) -> str:
        return posixpath.normpath("/" + path.lstrip("/"))

    def _info(self, path: str, stat) -> FileInfo:
        target = self.image.readlink(path) if stat.kind == "symlink" else ""
        return FileInfo(
            size=stat.st_size if stat.kind == "file" else 0,
            mtime=stat.st_mtime,
            mode=stat.st_mode,
            linkname=target,
            uid=stat.st_uid,
            gid=stat.st_gid,
            userdata=[path],
        )

    def is_immutable(self) -> bool:
        return True

    def list(self, path: str) -> Optional[Dict[str, FileInfo]]:
        path = self._absolute(path)
        try:
            entries = list(self.image.scandir(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return {entry.name: self._info(posixpath.join(path, entry.name), entry.stat(follow_symlinks=False)) for entry in entries}

    def list_mode(self, path: str) -> Optional[Dict[str, int]]:
        try:
            return {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in self.image.scandir(self._absolute(path))}
        except (FileNotFoundError, NotADirectoryError):
            return None

    def lookup(self, path: str, fileVersion: int = 0) -> Optional[FileInfo]:
        if fileVersion not in (0, 1):
            return None
        path = self._absolute(path)
        try:
            return self._info(path, self.image.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, fileInfo: FileInfo, buffering=-1) -> IO[bytes]:
        # The file buffers by itself.
        return self.image.open(fileInfo.userdata[-1])

    def read(self, fileInfo: FileInfo, size: int, offset: int) -> bytes:
        with self.image.open(fileInfo.userdata[-1]) as file:
            return file.pread(size, offset)

    def list_xattr(self, fileInfo: FileInfo):
        return list(self._xattrs(fileInfo))

    def get_xattr(self, fileInfo: FileInfo, key: str) -> Optional[bytes]:
        return self._xattrs(fileInfo).get(key)

    def _xattrs(self, fileInfo: FileInfo) -> Dict[str, bytes]:
        # Those of a symbolic link itself are not to be had by path.
        return {} if fileInfo.linkname else self.image.xattrs(fileInfo.userdata[-1])

    def statfs(self) -> Dict[str, Any]:
        return {"f_bsize": 128 << 10, "f_namemax": 255}

    def __exit__(self, *_raised) -> None:
        if self._is_ours:
            self.image.close()
