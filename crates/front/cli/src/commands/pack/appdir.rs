//! Checks an application directory, so that the AppImage made from it runs and desktops can show
//! it.
//!
//! The rules are those of the AppImage specification and of appimagetool. Each is checked before
//! anything is written, and each failure says how to fix it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Failure, Result};
use crate::exit::Exit;

/// A desktop file is about a page of text. A longer file is something else.
const MAX_DESKTOP: u64 = 1 << 20;
/// Keys without which desktops do not list an application.
const KEYS: [&str; 4] = ["Type", "Name", "Exec", "Icon"];
/// Suffixes of the icon's name, by the specification.
const ICONS: [&str; 3] = ["png", "svg", "xpm"];

/// Checks the directory. Returns the name of its icon.
pub fn check(dir: &Path) -> Result<String> {
    check_program(dir)?;
    let desktop = find_desktop(dir)?;
    let icon = check_desktop(&desktop)?;
    check_icon(dir, &desktop, &icon)
}

fn check_program(dir: &Path) -> Result<()> {
    let path = dir.join("AppRun");
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            Err(missing("is not a file", &path).hint("AppRun is the program that the AppImage runs"))
        }
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            Err(missing("cannot be run", &path).hint(format!("chmod +x {}", path.display())))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            Err(missing("points to no file", &path).hint("links in an AppDir are relative"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(missing("is missing", &path)
                .hint("AppRun is the program that the AppImage runs: a script, or a link as in ln -s usr/bin/PROGRAM AppRun"))
        }
        Err(error) => Err(Failure::source(&error).of(path.display())),
    }
}

fn find_desktop(dir: &Path) -> Result<PathBuf> {
    let failed = |error| Failure::source(&error).of(dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|suffix| suffix == "desktop") {
            found.push(path);
        }
    }
    found.sort();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(missing("has no .desktop file", dir)
            .hint("put one there that names Type, Name, Exec and Icon, or link it from usr/share/applications")),
        [first, second, ..] => {
            let message = format!(
                "has several .desktop files, {} and {} among them",
                name(first),
                name(second)
            );
            Err(missing(message, dir).hint("keep the .desktop file of the program that AppRun starts"))
        }
    }
}

/// Checks that the file has the keys. Returns the name of the icon.
fn check_desktop(path: &Path) -> Result<String> {
    let failed = |error| Failure::source(&error).of(path.display());
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_DESKTOP {
        return Err(missing("is not a desktop file", path));
    }
    let text = fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&text);
    for key in KEYS {
        if value(&text, key).is_none() {
            let message = format!("has no {key} in [Desktop Entry]");
            return Err(missing(message, path).hint(format!("add a line {key}=...")));
        }
    }
    let kind = value(&text, "Type").unwrap_or_default();
    if kind != "Application" {
        let message = format!("has Type={kind}");
        return Err(missing(message, path).hint("an AppImage needs Type=Application"));
    }
    Ok(value(&text, "Icon").unwrap_or_default().to_string())
}

/// Returns the value of a key in the main group.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let lines = text.lines().map(str::trim);
    let group = lines
        .skip_while(|line| *line != "[Desktop Entry]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let mut values = group.filter_map(|line| {
        let (found, value) = line.split_once('=')?;
        (found.trim() == key).then_some(value.trim())
    });
    values.next().filter(|value| !value.is_empty())
}

/// Returns the name of the file with the icon.
fn check_icon(dir: &Path, desktop: &Path, icon: &str) -> Result<String> {
    if icon.contains('/') {
        let message = format!("has Icon={icon}, which is a path");
        return Err(missing(message, desktop)
            .hint("give the name of the icon without directory and suffix"));
    }
    let names = ICONS.map(|suffix| format!("{icon}.{suffix}"));
    let has_suffix = ICONS
        .iter()
        .any(|suffix| icon.ends_with(&format!(".{suffix}")));
    let whole = has_suffix.then(|| icon.to_string());
    let mut found = names.iter().cloned().chain(whole);
    if let Some(icon) = found.find(|name| dir.join(name).is_file()) {
        return Ok(icon);
    }
    let message = format!("has no icon {}", names.join(", "));
    let hint = format!(
        "{} says Icon={icon}: put that icon beside it",
        name(desktop)
    );
    Err(missing(message, dir).hint(hint))
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn missing(message: impl Into<String>, path: &Path) -> Failure {
    Failure::new(Exit::Format, "appdir", message).of(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_main_group() {
        let text = "# x\n[Other]\nName=no\n[Desktop Entry]\nName = App \nName[de]=Anwendung\nIcon=\n[Desktop Action a]\nExec=no\n";
        for (key, expected) in [
            ("Name", Some("App")),
            ("Icon", None),
            ("Exec", None),
            ("Name[de]", Some("Anwendung")),
        ] {
            assert_eq!(value(text, key), expected, "{key}");
        }
    }
}
