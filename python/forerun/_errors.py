"""Errors: subclasses of OSError, with image, path and offset."""

from __future__ import annotations

import errno as _errno
from typing import Optional, Tuple, Type


class Error(OSError):
    """An error of an image or of a file in it.

    ``errno`` and ``strerror`` are as in any OSError, and ``filename`` is the path that failed. An error also has the
    builtin class for its errno: ``except FileNotFoundError`` catches the error of a missing file.
    """

    #: Path or address of the image that the error is about, if any.
    image: Optional[str] = None
    #: Path in the image, or of the file on disk that failed.
    path: Optional[str] = None
    #: Offset in the image at which reading or checking failed.
    offset: Optional[int] = None

    def __str__(self) -> str:
        names = [name for name in (self.image, self.path) if name is not None]
        return f"[Errno {self.errno}] " + ": ".join([*names, str(self.strerror)])

    def __reduce__(self):
        # With the attributes, for errors that travel between processes.
        state = {name: getattr(self, name) for name in ("image", "path", "offset")}
        return (type(self), (self.errno, self.strerror, self.filename), state)


class DamagedImageError(Error):
    """The image contradicts itself or its specification, or ends too early."""


class UnknownFormatError(Error):
    """No driver recognises these bytes."""


class UnsupportedError(Error):
    """The image is valid, but it or the request needs an unsupported feature."""


class LimitError(Error):
    """The image exceeds a limit: see ``read_limit`` of `forerun.open`."""


_BY_KIND = {
    "corrupt": DamagedImageError,
    "unknown_format": UnknownFormatError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
}


def _also(base: Type[Exception]) -> Type[Error]:
    """Returns the class that derives from `Error` and from the builtin class."""
    made = _COMBINED.get(base)
    if made is None:
        made = type(base.__name__, (Error, base), {"__module__": __name__})
        globals()[base.__name__] = made  # pickle looks for it here.
        _COMBINED[base] = made
    return made


_COMBINED: dict = {}
#: The builtin: `_also` puts a class of that name into this module.
_MemoryError = MemoryError
for _number in (
    _errno.ENOENT,
    _errno.EACCES,
    _errno.EEXIST,
    _errno.ENOTDIR,
    _errno.EISDIR,
    _errno.ETIMEDOUT,
    _errno.EINTR,
    _errno.ECONNREFUSED,
):
    _also(type(OSError(_number, "")))
_also(_MemoryError)


def make(
    kind: str,
    errno: int,
    text: str,
    names: Tuple[Optional[str], Optional[str]],
    offset: Optional[int],
) -> Error:
    """Makes the exception for an error of the library. Paths are decoded like file names."""
    image, path = (None if name is None else str(name) for name in names)
    builtin = _MemoryError if errno == _errno.ENOMEM else type(OSError(errno, ""))
    cls = _BY_KIND.get(kind) or (Error if builtin is OSError else _also(builtin))
    error = cls(errno, text, path if path is not None else image)
    error.image, error.path, error.offset = image, path, offset
    return error
