"""An extractor and a handler for unblob, which need no programs beside Python.

unblob finds SquashFS, EROFS, cramfs and romfs in firmware and starts a program for each: sasquatch, fsck.erofs and others.
`handlers()` are its own handlers with those programs replaced by forerun, for `unblob.processing.ExtractionConfig`:

    config = ExtractionConfig(extract_root=out, randomness_depth=0, handlers=handlers())
    process_file(config, Path("firmware.bin"))

exFAT is not among unblob's formats. As a plugin, this file adds it to the program: `unblob --plugins-path DIRECTORY ...`,
where the directory holds this file.

Works with unblob 26.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Tuple, Type

from unblob.handlers import BUILTIN_HANDLERS
from unblob.models import Extractor, ExtractError, ExtractResult, File, Handler, HexString, ValidChunk
from unblob.plugins import hookimpl
from unblob.report import ExtractionProblem, UnknownError

import forerun

#: Names of unblob's handlers whose formats forerun reads.
REPLACED = (
    "squashfs_v1",
    "squashfs_v2",
    "squashfs_v3",
    "squashfs_v4_le",
    "squashfs_v4_be",
    "cramfs",
    "romfs",
    "erofs",
)


class ForerunExtractor(Extractor):
    """Extracts an image that unblob has carved. Nothing is written outside of the directory."""

    def extract(self, inpath: Path, outdir: Path) -> Optional[ExtractResult]:
        try:
            with forerun.open(inpath) as image:
                done = image.extract(outdir, force=True)
        except OSError as error:
            raise ExtractError(UnknownError(exception=error)) from error
        problems: List[ExtractionProblem] = []
        for problem in (*done["failures"], *done["losses"]):
            problems.append(ExtractionProblem(path=str(inpath), problem=problem, resolution="Left out."))
        return ExtractResult(reports=problems)


class ExFatHandler(Handler):
    """exFAT volumes: the boot sector says how long they are, and forerun checks it."""

    NAME = "exfat"
    # The name of the file system, three bytes into the volume.
    PATTERNS = [HexString("EB 76 90 45 58 46 41 54 20 20 20")]
    EXTRACTOR = ForerunExtractor()
    DOC = None

    def calculate_chunk(self, file: File, start_offset: int) -> Optional[ValidChunk]:
        try:
            with forerun.open(file, offset=start_offset, format="exfat") as image:
                length = image.facts()["image_bytes"]
        except OSError:
            return None  # The bytes were no volume.
        return ValidChunk(start_offset=start_offset, end_offset=min(start_offset + length, file.size()))


def handlers() -> Tuple[Type[Handler], ...]:
    """Returns unblob's handlers, those of REPLACED with forerun as extractor, and that of exFAT."""
    extractor = ForerunExtractor()

    def replaced(handler):
        if handler.NAME not in REPLACED:
            return handler
        return type(handler.__name__, (handler,), {"EXTRACTOR": extractor})

    return (*map(replaced, BUILTIN_HANDLERS), ExFatHandler)


@hookimpl
def unblob_register_handlers() -> List[Type[Handler]]:
    return [ExFatHandler]
