"""Files of an image as file objects."""

from __future__ import annotations

import io
import os
from typing import Optional


class File(io.RawIOBase):
    """A regular file of an image, opened for reading: an ``io.RawIOBase`` that has a buffer.

    Small sequential reads are served from the buffer, so it needs no ``io.BufferedReader`` around it. ``read`` returns
    fewer bytes than requested only at the end of the file. Threads may share it; `pread` does not move the position.
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
        """Moves the position. It may be past the end, where reads return no bytes."""
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
        """Reads up to `size` bytes, or everything that is left if no size is given."""
        self._check()
        if size is None or size < 0:
            return self._raw.read(None)
        return self._raw.read(size)

    # Callers of io.BufferedReader use this name.
    read1 = read

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer) -> int:
        """Fills a writable buffer. Returns the number of bytes, less than its length only at the end of the file."""
        self._check()
        with memoryview(buffer) as view, view.cast("B") as out:
            data = self._raw.read(len(out))
            out[: len(data)] = data
        return len(data)

    readinto1 = readinto

    def peek(self, size: int = 1) -> bytes:
        """Returns bytes at the position without moving it; at least one unless the file ends there."""
        self._check()
        return self._raw.peek(max(size, 1))

    def pread(self, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes from `offset` on, without moving the position."""
        self._check()
        return self._raw.pread(size, offset)

    def close(self) -> None:
        if not self.closed:
            self._raw = _Closed(self._raw.size)
        super().close()

    def __reduce__(self):
        raise TypeError("an open file cannot be pickled: pickle the image and the path")


class _Closed:
    """The state of a closed file. It does not keep the image open."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.position = 0
