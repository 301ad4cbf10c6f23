"""NetCDF files of an image as one data set of xarray, read as far as a computation needs them.

    with open_arrays("x.sqsh", "weather/*.nc") as data:
        data["t"].sel(x=3).mean()

The file objects seek within the image, so h5netcdf reads the chunks of the variables that are used and no others.
"""

from __future__ import annotations

import xarray

from forerun.fsspec import ForerunFileSystem


def open_arrays(image: str, pattern: str, dim: str = "time") -> xarray.Dataset:
    """Returns the data set of all files that match, in the order of their names, joined along a dimension."""
    files = ForerunFileSystem(image)
    parts = [xarray.open_dataset(files.open(path), engine="h5netcdf") for path in sorted(files.glob(pattern))]
    return xarray.concat(parts, dim)
