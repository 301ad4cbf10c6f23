"""Python packages that run from an image.

>>> import forerun.importer, sys
>>> forerun.importer.install()
>>> sys.path.append("packages.sqsh")              # the root of the image
>>> sys.path.append("packages.sqsh/lib/python3")  # or a directory in it

`import` then searches paths that begin with the path of an image file, as it does for zip archives. Modules may be
``.py`` and ``.pyc``, with their resources (``importlib.resources``). Extension modules cannot be loaded from an image,
because the system's loader needs files.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import posixpath
import sys
import threading
from importlib.abc import PathEntryFinder, SourceLoader
from typing import Dict, Optional, Sequence, Tuple

from ._image import Image, open as _open

try:
    from importlib.resources.abc import TraversableResources
except ImportError:  # Before Python 3.11.
    from importlib.abc import TraversableResources

_images: Dict[str, Image] = {}
_lock = threading.Lock()


def install() -> None:
    """Makes paths in images work in ``sys.path``. Does nothing the second time."""
    if _hook not in sys.path_hooks:
        sys.path_hooks.append(_hook)
        sys.path_importer_cache.clear()


def uninstall() -> None:
    """Removes the hook. Loaded modules stay loaded."""
    if _hook in sys.path_hooks:
        sys.path_hooks.remove(_hook)
        sys.path_importer_cache.clear()


def _split(path: str) -> Optional[Tuple[str, str]]:
    """Splits a path into the path of an image file and the path inside it."""
    head, inside = os.path.abspath(path), ""
    while head and head != os.sep:
        if os.path.isfile(head):
            return head, "/" + inside
        if os.path.isdir(head):
            return None
        head, name = os.path.split(head)
        inside = posixpath.join(name, inside) if inside else name
    return None


def _image(path: str) -> Image:
    with _lock:
        image = _images.get(path)
        if image is None or image.closed:
            image = _images[path] = _open(path)
        return image


def _hook(path: str) -> "ImageFinder":
    split = _split(path)
    if split is None or split[0].endswith((".zip", ".whl", ".py", ".pyc", ".so")):
        raise ImportError(f"no image: {path}", path=path)
    try:
        image = _image(split[0])
        if image.stat(split[1]).kind != "directory":
            raise ImportError(f"no directory in the image: {path}", path=path)
    except OSError as error:
        raise ImportError(str(error), path=path) from error
    return ImageFinder(image, *split)


class ImageFinder(PathEntryFinder):
    """Finds modules in one directory of an image."""

    def __init__(self, image: Image, archive: str, directory: str) -> None:
        self._image, self._archive, self._directory = image, archive, directory

    def __repr__(self) -> str:
        return f"<ImageFinder {self._archive}{self._directory}>"

    def find_spec(self, fullname: str, target=None):
        del target
        name = fullname.rpartition(".")[2]
        below = posixpath.join(self._directory, name)
        for inside, is_package in (
            (posixpath.join(below, "__init__.py"), True),
            (posixpath.join(below, "__init__.pyc"), True),
            (below + ".py", False),
            (below + ".pyc", False),
        ):
            if self._image.exists(inside):
                loader = ImageLoader(self._image, self._archive, inside)
                spec = importlib.machinery.ModuleSpec(
                    fullname, loader, origin=self._archive + inside, is_package=is_package
                )
                spec.has_location = True
                # Also set for sources: the interpreter's own loaders look for bytecode there.
                if inside.endswith(".py"):
                    spec.cached = importlib.util.cache_from_source(self._archive + inside)
                if is_package:
                    spec.submodule_search_locations = [self._archive + below]
                return spec
        if self._image.exists(below) and self._image.stat(below).kind == "directory":
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [self._archive + below]
            return spec
        return None

    def invalidate_caches(self) -> None:
        """Images do not change."""


class ImageLoader(SourceLoader):
    """Loads a module from an image. Uses bytecode in the image if it is not older than the source."""

    def __init__(self, image: Image, archive: str, inside: str) -> None:
        self._image, self._archive, self._inside = image, archive, inside

    def _within(self, path: str) -> str:
        if not path.startswith(self._archive + "/"):
            raise FileNotFoundError(f"not in {self._archive}: {path}")
        return path[len(self._archive) :]

    def get_filename(self, fullname: str) -> str:
        del fullname
        return self._archive + self._inside

    def is_package(self, fullname: str) -> bool:
        return posixpath.basename(self._inside).partition(".")[0] == "__init__"

    def get_data(self, path: str) -> bytes:
        return self._image.read(self._within(path))

    def path_stats(self, path: str) -> dict:
        stat = self._image.stat(self._within(path))
        return {"mtime": stat.st_mtime_ns // 1_000_000_000, "size": stat.st_size}

    def get_code(self, fullname: str):
        if not self._inside.endswith(".pyc"):
            return super().get_code(fullname)
        import marshal

        data = self.get_data(self.get_filename(fullname))
        if data[:4] != importlib.util.MAGIC_NUMBER:
            raise ImportError(f"bytecode of another Python: {self._inside}", name=fullname)
        return marshal.loads(memoryview(data)[16:])

    def get_source(self, fullname: str):
        return None if self._inside.endswith(".pyc") else super().get_source(fullname)

    def get_resource_reader(self, fullname: str):
        return _Resources(self._image, posixpath.dirname(self._inside)) if self.is_package(fullname) else None


class _Resources(TraversableResources):
    def __init__(self, image: Image, directory: str) -> None:
        self._image, self._directory = image, directory

    def files(self):
        return self._image.path(self._directory)


def packages_of(image: Image, path: str = "/") -> Sequence[str]:
    """Returns the names of the top-level modules and packages in a directory of an image."""
    found = set()
    for entry in image.scandir(path):
        stem, suffix = posixpath.splitext(entry.name)
        if entry.is_file() and suffix in (".py", ".pyc"):
            found.add(stem)
        elif entry.is_dir() and image.exists(
            posixpath.join(path, entry.name, "__init__.py")
        ):
            found.add(entry.name)
    return sorted(found)
