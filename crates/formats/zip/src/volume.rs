use forerun_vfs::VolumeInfo;

use crate::directory::Directory;
use crate::end::End;

pub fn describe(end: &End, directory: &Directory) -> VolumeInfo {
    let facts = &directory.facts;
    let mut info = VolumeInfo::new("zip", end.len, 512);
    info.has_owners = facts.has_owners;
    info.left_out = facts.left_out;
    info.details = vec![("members", facts.members.to_string())];
    if end.prefix > 0 {
        info.details
            .push(("bytes before the archive", end.prefix.to_string()));
    }
    if !end.comment.is_empty() {
        let comment = end.comment.get(..256).unwrap_or(&end.comment);
        let comment = String::from_utf8_lossy(comment).into_owned();
        info.details.push(("comment", comment));
    }
    for (count, what) in [
        (facts.encrypted, "encrypted members cannot be read"),
        (
            facts.unsupported,
            "members are compressed in ways that are not supported",
        ),
    ] {
        if count > 0 {
            info.warnings.push(format!("{count} {what}"));
        }
    }
    let warnings = facts.warnings.iter();
    info.warnings
        .extend(warnings.map(|(at, check)| format!("{check} (at {at:#x})")));
    if facts.more_warnings > 0 {
        let told = format!(
            "{} further members are left out or unusual",
            facts.more_warnings
        );
        info.warnings.push(told);
    }
    if let Some(damage) = &directory.damage {
        info.warnings.push(damage.to_string());
    }
    info
}
