//! Reports what went into an image: the names with `-v`, and a summary line.

use std::io::Write as _;
use std::time::Duration;

use forerun::build::{NodeIndex, NodeKind, Tree};

use crate::context::Context;
use crate::escape::escape;
use crate::size::{counted, human};

/// Counts the names of a tree that are not directories. Prints every path with `-v`.
pub fn list(context: &Context, tree: &Tree) -> u64 {
    let shown = context.global.verbose > 0 && !context.global.quiet && !context.global.json;
    let mut files = 0;
    visit(tree, &mut |path, node| {
        if !matches!(tree.node(node).kind, NodeKind::Directory(_)) {
            files += 1;
        }
        if shown {
            // If standard error is gone, nothing can be reported.
            let _ = writeln!(std::io::stderr(), "{}", escape(path));
        }
    });
    files
}

/// Visits everything below the root, directories before their entries. Stores only one path, and a
/// position in each directory on it.
fn visit(tree: &Tree, visit: &mut dyn FnMut(&[u8], NodeIndex)) {
    let mut path = Vec::new();
    let mut above = vec![(0, tree.children(Tree::ROOT))];
    while let Some((len, children)) = above.last_mut() {
        path.truncate(*len);
        let Some((name, node)) = children.next() else {
            above.pop();
            continue;
        };
        path.push(b'/');
        path.extend_from_slice(name);
        visit(&path, node);
        if matches!(tree.node(node).kind, NodeKind::Directory(_)) {
            above.push((path.len(), tree.children(node)));
        }
    }
}

/// Formats the summary: the input, the output, and the time taken.
pub fn line(output: &str, files: u64, (bytes_in, bytes_out): (u64, u64), took: Duration) -> String {
    let files = counted(files, "file", "files");
    let ratio = match ratio(bytes_in, bytes_out) {
        Some(ratio) => format!(" ({ratio})"),
        None => String::new(),
    };
    let (bytes_in, bytes_out) = (human(bytes_in), human(bytes_out));
    let seconds = took.as_secs_f64();
    format!("{output}: {files}, {bytes_in} in, {bytes_out} out{ratio}, {seconds:.1} s")
}

/// Formats the output as a share of the input, if it is smaller.
fn ratio(bytes_in: u64, bytes_out: u64) -> Option<String> {
    let permille = bytes_out.checked_mul(1000)?.checked_div(bytes_in)?;
    let is_less = permille <= 1000;
    is_less.then(|| format!("{}.{} %", permille / 10, permille % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for (bytes, expected) in [
            (
                (2048, 512),
                "a: 1 file, 2.0 KiB in, 512 B out (25.0 %), 1.5 s",
            ),
            ((0, 512), "a: 1 file, 0 B in, 512 B out, 1.5 s"),
            ((1024, 2048), "a: 1 file, 1.0 KiB in, 2.0 KiB out, 1.5 s"),
        ] {
            assert_eq!(line("a", 1, bytes, Duration::from_millis(1500)), expected);
        }
    }
}
