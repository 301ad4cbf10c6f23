"""Tables of an image as one DataFrame: each file is read once, on several threads, ahead of the parser.

    frame = read_csvs("x.sqsh", "/data/*.csv")

For one file, `pandas.read_csv("forerun://data/a.csv::file://x.sqsh")` does it by fsspec.
"""

from __future__ import annotations

import io

import pandas

import forerun


def read_csvs(image: str, pattern: str, **options) -> pandas.DataFrame:
    """Returns the rows of all files that match, with their paths in the index. `options` are those of read_csv."""
    with forerun.open(image) as opened:
        files = opened.read_many(opened.glob(pattern))
        frames = {path: pandas.read_csv(io.BytesIO(contents), **options) for path, contents in files}
    return pandas.concat(frames, names=["path", "row"])
