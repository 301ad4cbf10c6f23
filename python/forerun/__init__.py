"""Files straight from filesystem images.

>>> import forerun
>>> image = forerun.open("x.sqsh")
>>> image.read("/etc/hosts")
b'127.0.0.1 localhost\\n'
>>> image.close()

An image is SquashFS, EROFS, composefs, exFAT, romfs, cramfs, or an archive (tar, zip), in a file, on a server
(``https://``, ``s3://``, ``oci://``) or in a file object; the format is found by content. Paths in an image are
``str``, ``bytes`` or ``os.PathLike``, absolute or relative to its root; no ``..`` and no symbolic link leads out of
it. Sizes and offsets are bytes. Errors are subclasses of ``OSError``: see `Error`.
"""

from ._errors import (
    DamagedImageError,
    Error,
    LimitError,
    UnknownFormatError,
    UnsupportedError,
)
from ._file import File
from ._forerun import Entry, Extent, Mount, ReadMany, Stat
from ._image import Image, open, pack
from ._path import ImagePath
from ._forerun import format_names, packable_formats

__all__ = [
    "DamagedImageError",
    "Entry",
    "Error",
    "Extent",
    "File",
    "Image",
    "ImagePath",
    "LimitError",
    "Mount",
    "ReadMany",
    "Stat",
    "UnknownFormatError",
    "UnsupportedError",
    "format_names",
    "open",
    "pack",
    "packable_formats",
]
