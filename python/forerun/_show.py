"""An image in a notebook: facts, sizes, a tree."""

from __future__ import annotations

import posixpath
from html import escape
from typing import Iterator, List, Tuple

#: Most entries summed for the picture of sizes; an image may have millions.
_MOST_ENTRIES = 200_000
_WIDTH, _HEIGHT = 480, 160
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")


def size_text(size: float) -> str:
    """Formats a size for display, such as ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"


def shown(text: str) -> str:
    """Escapes unprintable characters of a name: names in an image may contain anything, such as terminal codes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


class Tree:
    """The tree below a path, for ``print`` or a notebook."""

    def __init__(self, image, path: str, depth: int, most: int) -> None:
        self._image, self._path, self._depth, self._most = image, path, depth, most

    def _lines(self) -> Iterator[str]:
        yield shown(self._path)
        yield from self._below(self._path, "", 1)

    def _below(self, path: str, indent: str, level: int) -> Iterator[str]:
        entries = sorted(self._image.scandir(path), key=lambda entry: entry.name)
        for number, entry in enumerate(entries):
            is_last = number + 1 == len(entries)
            what = {"directory": "/", "file": ""}.get(entry.kind, f" ({entry.kind})")
            if entry.kind == "file":
                what = f"  {size_text(entry.stat().st_size)}"
            elif entry.kind == "symlink":
                what = " -> " + shown(self._image.readlink(entry.path))
            yield indent + ("`-- " if is_last else "|-- ") + shown(entry.name) + what
            if entry.kind == "directory" and level < self._depth:
                yield from self._below(entry.path, indent + ("    " if is_last else "|   "), level + 1)

    def __str__(self) -> str:
        lines: List[str] = []
        for line in self._lines():
            if len(lines) == self._most:
                lines.append("...")
                break
            lines.append(line)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def _sizes(image) -> Tuple[dict, int, int, bool]:
    """Sums the bytes below each name in the root. Returns the sums, the number of files, the total, and whether all
    entries were counted."""
    sums: dict = {}
    files = total = 0
    for number, entry in enumerate(image.entries("/")):
        if number == _MOST_ENTRIES:
            return sums, files, total, False
        if entry.kind == "file":
            size = entry.stat().st_size
            name = entry.path.lstrip("/").partition("/")[0]
            sums[name] = sums.get(name, 0) + size
            files, total = files + 1, total + size
    return sums, files, total, True


def _treemap(sums: dict) -> str:
    """Draws an SVG of rectangles with areas proportional to the sizes, in rows as wide as the picture."""
    left = sorted(((size, name) for name, size in sums.items() if size), reverse=True)
    total = sum(size for size, _ in left)
    if not total:
        return ""
    if len(left) > 24:
        rest = sum(size for size, _ in left[23:])
        left = [*left[:23], (rest, f"{len(sums) - 23} others")]
    parts: List[str] = []
    top = 0.0
    while left:
        # A row takes entries until it is about as high as its first rectangle is wide.
        row: List[Tuple[int, str]] = []
        size = 0
        while left and (not row or size * _HEIGHT / total < _WIDTH * row[0][0] / size / 2):
            row.append(left.pop(0))
            size += row[-1][0]
        height, x = _HEIGHT * size / total, 0.0
        for part, name in row:
            width = _WIDTH * part / size
            colour = _COLOURS[len(parts) % len(_COLOURS)]
            title = f"{shown(name)}: {size_text(part)}"
            label = ""
            if width > 7 * len(name) and height > 14:
                label = f'<text x="{x + 3:.1f}" y="{top + 12:.1f}" font-size="11" fill="#fff">{escape(shown(name))}</text>'
            parts.append(
                f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}" fill="{colour}" stroke="#fff"/>{label}</g>'
            )
            x += width
        top += height
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">{"".join(parts)}</svg>'


def image_html(image) -> str:
    """Returns facts of an image and a picture of its sizes, as HTML."""
    if image.closed:
        return escape(repr(image))
    facts = image.facts()
    sums, files, total, is_all = _sizes(image)
    more = "" if is_all else " at least"
    rows = [
        ("image", posixpath.basename(image.name or "")),
        ("format", facts["format"]),
        ("image", size_text(facts["image_bytes"] or facts["source_bytes"])),
        ("files", f"{files}{more}, {size_text(total)}"),
    ]
    rows += [(name, facts[name]) for name in ("compression", "compressor") if name in facts]
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(shown(str(value)))}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>{_treemap(sums)}"
