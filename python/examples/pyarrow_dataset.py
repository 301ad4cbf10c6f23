"""Parquet files of an image as one data set of pyarrow, which reads the columns and row groups that a query needs.

    data = parquet_dataset("x.sqsh", "tables")
    data.to_table(columns=["square"], filter=pyarrow.dataset.field("n") > 2)

The image may be at a server: `parquet_dataset("https://example.org/x.sqsh", "tables")` fetches the chunks that hold
those columns.
"""

from __future__ import annotations

import pyarrow.dataset
from pyarrow.fs import FSSpecHandler, PyFileSystem

from forerun.fsspec import ForerunFileSystem


def parquet_dataset(image: str, directory: str) -> pyarrow.dataset.Dataset:
    """Returns the data set of all Parquet files below a directory."""
    files = PyFileSystem(FSSpecHandler(ForerunFileSystem(image)))
    return pyarrow.dataset.dataset(directory, filesystem=files, format="parquet")
