//! Options of opening an image, from keywords of `forerun.open`.

use std::path::PathBuf;
use std::time::Duration;

use forerun::OpenOptions;
use forerun::vfs::Verity;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::types::{PyAnyMethods, PyDict, PyDictMethods};
use pyo3::{Bound, PyAny, PyResult};

/// Converts the keywords. `None` keeps a default.
pub fn open_options(given: &Bound<'_, PyDict>) -> PyResult<OpenOptions> {
    let mut options = OpenOptions::default();
    for (name, value) in given.iter() {
        let name: String = name.extract()?;
        if value.is_none() {
            continue;
        }
        if !of_image(&mut options, &name, &value)? && !of_server(&mut options, &name, &value)? {
            let message = format!("open() got an unexpected keyword argument '{name}'");
            return Err(PyTypeError::new_err(message));
        }
    }
    Ok(options)
}

/// Sets an option of any image. Returns false if no option has this name.
fn of_image(options: &mut OpenOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "offset" => options.offset = value.extract()?,
        "size" => options.size = Some(value.extract()?),
        "format" => options.format = Some(value.extract()?),
        "cache" => options.engine.cache = value.extract()?,
        "readahead" => options.engine.readahead = value.extract()?,
        "threads" => options.engine.threads = value.extract()?,
        "devices" => options.devices = value.extract::<Vec<PathBuf>>()?,
        "objects" => options.objects = Some(value.extract()?),
        "basedirs" => options.base_dirs = value.extract::<Vec<PathBuf>>()?,
        "digest" => options.digest = Some(value.extract()?),
        "rescue" => options.rescue = value.extract()?,
        "read_limit" => options.limits.read_bytes = value.extract()?,
        "verity" => {
            options.verity = match value.extract::<String>()?.as_str() {
                "off" => Verity::Off,
                "on" => Verity::On,
                "require" => Verity::Require,
                other => {
                    let message = format!("verity={other:?}: 'off', 'on' or 'require'");
                    return Err(PyValueError::new_err(message));
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets an option of images on servers. Returns false if no option has this name.
fn of_server(options: &mut OpenOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let remote = &mut options.remote;
    match name {
        "cache_dir" => remote.cache_dir = Some(value.extract()?),
        "cache_limit" => remote.cache_limit = Some(value.extract()?),
        "mirrors" => remote.mirrors = value.extract()?,
        "offline" => remote.offline = value.extract()?,
        "require_verified" => remote.require_verified = value.extract()?,
        "ca_file" => remote.ca_file = Some(value.extract()?),
        "timeout" => {
            let seconds = value.extract()?;
            remote.timeout = Duration::try_from_secs_f64(seconds)
                .map_err(|error| PyValueError::new_err(format!("timeout={seconds}: {error}")))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
