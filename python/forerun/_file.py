"""Files of an image as file objects."""

from __future__ import annotations

import io
import os
from typing import Optional


class File(io.RawIOBase):
    """A regular file of an image, opened to read: an ``io.RawIOBase`` that is buffered all the same.

    Small reads in order take no call to the image each, so that it needs no ``io.BufferedReader`` around it. ``read``
    returns fewer bytes than asked for only at the end of the file. Threads may share it; `pread` leaves the position
    alone.
    """

    def __init__(self, raw, name: str) -> None:
        super().__init__()
        self._raw = raw
        self.name = name
        self.mode = "rb"

    def __repr__(self) -> str:
        return f"<forerun.File {self.name!r}>"

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._raw.size

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def writable(self) -> bool:
        self._check()
        return False

    def tell(self) -> int:
        self._check()
        return self._raw.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position. It may lie past the end, where reads return no bytes."""
        self._check()
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._raw.position, os.SEEK_END: self._raw.size}
        if whence not in start:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        position = start[whence] + offset
        if position < 0:
            raise ValueError(f"negative seek value {position}")
        self._raw.position = position
        return position

    def read(self, size: Optional[int] = -1) -> bytes:
        """Reads up to `size` bytes; all that is left without a number."""
        self._check()
        if size is None or size < 0:
            return self._raw.read(None)
        return self._raw.read(size)

    # What callers of io.BufferedReader use.
    read1 = read

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer) -> int:
        """Reads into a writable buffer. Returns the number of bytes: fewer than fit only at the end of the file."""
        self._check()
        with memoryview(buffer) as view, view.cast("B") as out:
            data = self._raw.read(len(out))
            out[: len(data)] = data
        return len(data)

    readinto1 = readinto

    def peek(self, size: int = 1) -> bytes:
        """Returns bytes at the position, at least one where there is one, and leaves the position alone."""
        self._check()
        return self._raw.peek(max(size, 1))

    def pread(self, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes from `offset` on, and leaves the position alone."""
        self._check()
        return self._raw.pread(size, offset)

    def close(self) -> None:
        if not self.closed:
            self._raw = _Closed(self._raw.size)
        super().close()

    def __reduce__(self):
        raise TypeError("an open file cannot be pickled: pickle the image and the path")


class _Closed:
    """What is left of a file: the image need not stay open for it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.position = 0
