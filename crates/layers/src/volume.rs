use forerun_vfs::VolumeInfo;

use crate::stack::Stack;

/// Most warnings to keep from all layers together.
const WARNINGS: usize = 64;

/// Returns the properties of the merge: sums of counts, and the label of the uppermost layer.
pub fn describe(stack: &Stack) -> VolumeInfo {
    let mut info = VolumeInfo::new("layers", 0, 1);
    let mut names = Vec::new();
    info.name_max = 1;
    (info.has_owners, info.has_times) = (false, false);
    for layer in stack.layers() {
        let volume = layer.fs.volume();
        info.image_len += volume.image_len;
        info.block_size = info.block_size.max(volume.block_size);
        info.name_max = info.name_max.max(volume.name_max);
        info.has_xattrs |= volume.has_xattrs;
        info.has_acls |= volume.has_acls;
        info.has_owners |= volume.has_owners;
        info.has_times |= volume.has_times;
        info.created = info.created.max(volume.created);
        info.left_out += volume.left_out;
        if !volume.label.is_empty() {
            info.label.clone_from(&volume.label);
        }
        let room = WARNINGS - info.warnings.len();
        let warnings = volume.warnings.iter().take(room);
        let warnings = warnings.map(|warning| format!("{}: {warning}", layer.name));
        info.warnings.extend(warnings);
        let note = layer.note.map(|note| format!(", {note}"));
        let note = note.unwrap_or_default();
        names.push(format!("{} ({}{note})", layer.name, volume.format));
    }
    for (at, path) in stack.links().lost() {
        info.left_out += 1;
        if info.warnings.len() < WARNINGS
            && let Some(layer) = stack.layer(at.layer)
        {
            let (name, path) = (&layer.name, String::from_utf8_lossy(path));
            let told =
                format!("{name}: a hard link is left out: no lower layer has a file {path:?}");
            info.warnings.push(told);
        }
    }
    info.details = vec![
        ("layers", names.len().to_string()),
        ("lowest first", names.join(", ")),
    ];
    info
}
