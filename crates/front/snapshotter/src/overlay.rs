//! Builds the mounts that containerd makes of a snapshot.

use std::path::{Path, PathBuf};

/// Arguments of mount(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub kind: &'static str,
    /// Source directory, or a placeholder.
    pub source: String,
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// The directories below, topmost first.
    pub lower: Vec<PathBuf>,
    /// The upper directory and the work directory of a writable snapshot.
    pub upper: Option<(PathBuf, PathBuf)>,
}

/// Returns the mount of these directories, `None` if there are none.
pub fn mount(directories: &Directories, has_index: bool) -> Option<Mount> {
    let Directories { lower, upper } = directories;
    match (lower.as_slice(), upper) {
        ([], None) => None,
        ([], Some((files, _))) => Some(bind(files, "rw")),
        ([only], None) => Some(bind(only, "ro")),
        (lower, upper) => {
            let mut options = Vec::new();
            if has_index {
                // Several mounts may share a lower directory.
                options.push("index=off".to_owned());
            }
            if let Some((files, work)) = upper {
                options.push(format!("workdir={}", work.display()));
                options.push(format!("upperdir={}", files.display()));
            }
            let lower: Vec<_> = lower.iter().map(|dir| dir.display().to_string()).collect();
            options.push(format!("lowerdir={}", lower.join(":")));
            Some(Mount {
                kind: "overlay",
                source: "overlay".to_owned(),
                options,
            })
        }
    }
}

pub fn has_index() -> bool {
    Path::new("/sys/module/overlay/parameters/index").exists()
}

fn bind(dir: &Path, mode: &str) -> Mount {
    Mount {
        kind: "bind",
        source: dir.display().to_string(),
        options: vec![mode.to_owned(), "rbind".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mounts_are_as_containerd_makes_them() {
        let own = || Some((PathBuf::from("/s/3/fs"), PathBuf::from("/s/3/work")));
        for (lower, upper, expected) in [
            (&[][..], own(), "bind /s/3/fs rw,rbind"),
            (&["/s/1/fs"], None, "bind /s/1/fs ro,rbind"),
            (
                &["/s/2/fs", "/c/1"],
                None,
                "overlay overlay index=off,lowerdir=/s/2/fs:/c/1",
            ),
            (
                &["/c/1"],
                own(),
                "overlay overlay index=off,workdir=/s/3/work,upperdir=/s/3/fs,lowerdir=/c/1",
            ),
        ] {
            let lower = lower.iter().map(PathBuf::from).collect();
            let mount = mount(&Directories { lower, upper }, true).unwrap();
            let text = format!(
                "{} {} {}",
                mount.kind,
                mount.source,
                mount.options.join(",")
            );
            assert_eq!(text, expected);
        }
    }
}
