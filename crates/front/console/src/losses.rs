//! Reports the properties of a tree that the image's format cannot store.

use forerun::Writer;
use forerun::build::{LossKind, NotKept, Tree};

use crate::advice::absolute;
use crate::context::Context;
use crate::error::Failure;
use crate::escape::escape;
use crate::exit::Exit;
use crate::size::counted;

/// Reports what the image will lack: each kind of omitted entry, which makes the image partial, and
/// in one note the lost properties of the other entries.
pub fn tell_losses(context: &Context, writer: &Writer, tree: &Tree, image: &str) -> Exit {
    let mut exit = Exit::Ok;
    let format = writer.name();
    let lost = writer.not_kept(tree);
    let (left_out, changed): (Vec<_>, Vec<_>) =
        lost.into_iter().partition(|lost| lost.what.leaves_out());
    for lost in left_out {
        let message = format!(
            "{}, as {format} has none: {}",
            text(&lost),
            examples(&lost, 5)
        );
        let failure = Failure::new(Exit::Partial, "shortfall", message);
        let failure = failure.hint("--exclude leaves them out silently");
        exit = context.report(&failure.of(image));
    }
    if let Some(changed) = sentence(format, &changed) {
        context.note(&format!("{image}: {changed}"));
    }
    exit
}

/// Describes the properties that stored entries will lack.
pub fn lost_properties(writer: &Writer, tree: &Tree) -> Option<String> {
    let mut lost = writer.not_kept(tree);
    lost.retain(|lost| !lost.what.leaves_out());
    sentence(writer.name(), &lost)
}

fn sentence(format: &str, lost: &[NotKept]) -> Option<String> {
    let lost = lost
        .iter()
        .map(|lost| format!("{} ({})", text(lost), examples(lost, 1)));
    let lost = lost.collect::<Vec<_>>().join("; ");
    (!lost.is_empty()).then(|| format!("{format} cannot store everything: {lost}"))
}

fn text(lost: &NotKept) -> String {
    if lost.what == LossKind::Xattrs {
        let who = counted(lost.count, "entry loses", "entries lose");
        let spaces = lost.name_spaces.iter().map(|space| match space.as_slice() {
            b"" => "without a name".to_string(),
            space => format!("of {}", escape(space)),
        });
        let spaces = spaces.collect::<Vec<_>>().join(" and ");
        return format!("{who} extended attributes {spaces}");
    }
    let (one, many) = match lost.what {
        LossKind::Symlink => ("symbolic link left out", "symbolic links left out"),
        LossKind::Special => (
            "device, pipe or socket left out",
            "devices, pipes and sockets left out",
        ),
        LossKind::HardLink => (
            "hard link becomes a file of its own",
            "hard links become files of their own",
        ),
        LossKind::Acls => (
            "entry loses its access control list",
            "entries lose their access control lists",
        ),
        LossKind::Owner => ("entry loses its owner", "entries lose their owners"),
        LossKind::Permissions => (
            "entry changes its permissions",
            "entries change their permissions",
        ),
        LossKind::SpecialBits => (
            "entry loses its set-id or sticky bit",
            "entries lose their set-id or sticky bits",
        ),
        LossKind::Time => ("entry changes its time", "entries change their times"),
        _ => ("entry loses something", "entries lose something"),
    };
    counted(lost.count, one, many)
}

fn examples(lost: &NotKept, most: usize) -> String {
    let paths = lost.examples.iter().take(most);
    let paths: Vec<_> = paths.map(|path| escape(&absolute(path))).collect();
    let told = crate::size::count_of(paths.len());
    let more = if told < lost.count { ", ..." } else { "" };
    format!("{}{more}", paths.join(", "))
}
