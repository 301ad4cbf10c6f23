//! Names in columns on a terminal, filled downwards like ls(1).

use unicode_width::UnicodeWidthStr;

/// Columns between two names.
const GAP: usize = 2;

/// Arranges `names` in as many columns as fit into `width`. Returns the lines.
pub fn lines(names: &[String], width: usize) -> Vec<String> {
    let widths: Vec<_> = names.iter().map(|name| name.width()).collect();
    // More columns never fit, even with names of one letter.
    let most = (width / (1 + GAP)).clamp(1, names.len().max(1));
    let columns = (1..=most).rev().find_map(|columns| {
        let rows = names.len().div_ceil(columns);
        let columns: Vec<_> = widths
            .chunks(rows.max(1))
            .map(|column| column.iter().max().map_or(0, |width| width + GAP))
            .collect();
        let total = columns.iter().sum::<usize>().saturating_sub(GAP);
        (total <= width).then_some(columns)
    });
    let Some(columns) = columns else {
        return names.to_vec();
    };
    let rows = names.len().div_ceil(columns.len().max(1));
    let line = |row: usize| {
        let mut line = String::new();
        let cells = (row..names.len()).step_by(rows.max(1)).zip(&columns);
        for (index, column) in cells {
            let (Some(name), Some(width)) = (names.get(index), widths.get(index)) else {
                continue;
            };
            line.push_str(name);
            line.extend(std::iter::repeat_n(' ', column.saturating_sub(*width)));
        }
        line.trim_end().to_string()
    };
    (0..rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_downwards() {
        let names: Vec<_> = ["a", "bb", "ccc", "d", "e"].map(String::from).into();
        assert_eq!(lines(&names, 80), ["a  bb  ccc  d  e"]);
        assert_eq!(lines(&names, 9), ["a    d", "bb   e", "ccc"]);
        assert_eq!(lines(&names, 1), ["a", "bb", "ccc", "d", "e"]);
        assert!(lines(&[], 80).is_empty());
    }
}
