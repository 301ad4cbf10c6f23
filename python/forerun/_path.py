"""Paths in an image as objects, like those of pathlib."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING, Iterator, Union

try:
    from importlib.resources.abc import Traversable
except ImportError:  # Before Python 3.11.
    from importlib.abc import Traversable

if TYPE_CHECKING:
    from ._image import Image


class ImagePath(Traversable):
    """A path in an image: an ``importlib.resources.abc.Traversable`` with further methods of ``pathlib.Path``.

    It is absolute, and without ``.`` and ``..``.
    """

    __slots__ = ("image", "_path")

    def __init__(self, image: "Image", path: str = "/") -> None:
        self.image = image
        self._path = posixpath.normpath("/" + path.lstrip("/"))

    def __str__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"ImagePath({self.image.name!r}, {self._path!r})"

    def __eq__(self, other) -> bool:
        if not isinstance(other, ImagePath):
            return NotImplemented
        return (self.image is other.image or self.image.name == other.image.name) and (
            self._path == other._path
        )

    def __hash__(self) -> int:
        return hash((self.image.name, self._path))

    def __truediv__(self, child: Union[str, "os.PathLike[str]"]) -> "ImagePath":
        return self.joinpath(child)

    def joinpath(self, *descendants: Union[str, "os.PathLike[str]"]) -> "ImagePath":
        return ImagePath(self.image, posixpath.join(self._path, *(os.fspath(name) for name in descendants)))

    @property
    def name(self) -> str:
        """The last component; empty for the root."""
        return posixpath.basename(self._path)

    @property
    def suffix(self) -> str:
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> "ImagePath":
        return ImagePath(self.image, posixpath.dirname(self._path))

    @property
    def parts(self) -> tuple:
        names = [name for name in self._path.split("/") if name]
        return ("/", *names)

    def relative_to(self, other) -> str:
        """Returns the rest of the path below `other`."""
        other = str(other).rstrip("/") + "/"
        if not (self._path + "/").startswith(other):
            raise ValueError(f"{self._path!r} is not below {other!r}")
        return self._path[len(other) :] or "."

    def iterdir(self) -> Iterator["ImagePath"]:
        for name in self.image.listdir(self._path):
            yield ImagePath(self.image, posixpath.join(self._path, name))

    def glob(self, pattern: str) -> Iterator["ImagePath"]:
        """Yields the paths below this one that match the pattern."""
        escaped = "".join("\\" + c if c in "*?[]{}\\" else c for c in self._path)
        for path in self.image.glob(posixpath.join(escaped, pattern)):
            yield ImagePath(self.image, path)

    def exists(self) -> bool:
        return self.image.exists(self._path)

    def is_dir(self) -> bool:
        return self.exists() and self.stat().kind == "directory"

    def is_file(self) -> bool:
        return self.exists() and self.stat().kind == "file"

    def is_symlink(self) -> bool:
        try:
            return self.lstat().kind == "symlink"
        except (FileNotFoundError, NotADirectoryError):
            return False

    def stat(self):
        return self.image.stat(self._path)

    def lstat(self):
        return self.image.lstat(self._path)

    def readlink(self) -> str:
        return self.image.readlink(self._path)

    def resolve(self) -> "ImagePath":
        return ImagePath(self.image, self.image.realpath(self._path))

    def open(self, mode: str = "r", buffering: int = -1, encoding=None, errors=None, newline=None):
        return self.image.open(self._path, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        return self.image.read(self._path)

    def read_text(self, encoding=None, errors=None) -> str:
        with self.open("r", encoding=encoding or "utf-8", errors=errors) as file:
            return file.read()
