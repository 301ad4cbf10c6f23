//! Changes of permissions, in octal or in the symbols of chmod(1).

const ALL: u16 = 0o7777;

/// The steps of a change in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Step>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    operation: Operation,
    /// The bits that the step may change.
    mask: u16,
    bits: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    Fixed {
        bits: u16,
        /// `X`: also execution, for directories and for files that someone may execute.
        search: bool,
    },
    /// The bits of the owner, the group or others, shifted right by this number.
    Of(u16),
}

impl ModeChange {
    /// Parses an octal number up to 7777, or symbols such as `u=rwx,go-w`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok()?;
            let step = Step {
                operation: Operation::Set,
                mask: ALL,
                bits: Bits::Fixed {
                    bits,
                    search: false,
                },
            };
            return (bits <= ALL).then(|| Self(vec![step]));
        }
        let mut steps = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            clause(part, &mut steps)?;
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// Returns the permissions that replace `mode`.
    pub fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        self.0.iter().fold(mode, |mode, step| {
            let bits = match step.bits {
                Bits::Of(shift) => (mode >> shift & 0o7) * 0o111,
                Bits::Fixed { bits, search: true } if is_dir || mode & 0o111 != 0 => bits | 0o111,
                Bits::Fixed { bits, .. } => bits,
            };
            let bits = bits & step.mask;
            match step.operation {
                Operation::Add => mode | bits,
                Operation::Remove => mode & !bits,
                Operation::Set => mode & !step.mask | bits,
            }
        })
    }
}

/// Parses `[ugoa]*` and the operations after it, each with `[rwxXst]*` or one of `ugo`.
fn clause(text: &str, steps: &mut Vec<Step>) -> Option<()> {
    let operations = text.trim_start_matches(['u', 'g', 'o', 'a']);
    let whose = text.strip_suffix(operations)?;
    let mask = match whose {
        "" => 0o777,
        whose => whose.chars().fold(0, |mask, char| match char {
            'u' => mask | 0o4700,
            'g' => mask | 0o2070,
            'o' => mask | 0o1007,
            _ => ALL,
        }),
    };
    let mut rest = operations;
    while let Some(sign) = rest.chars().next() {
        let operation = match sign {
            '+' => Operation::Add,
            '-' => Operation::Remove,
            '=' => Operation::Set,
            _ => return None,
        };
        rest = &rest[1..];
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let (letters, after) = rest.split_at(end);
        rest = after;
        steps.push(Step {
            operation,
            mask,
            bits: bits(letters)?,
        });
    }
    (!operations.is_empty()).then_some(())
}

fn bits(letters: &str) -> Option<Bits> {
    match letters {
        "u" => return Some(Bits::Of(6)),
        "g" => return Some(Bits::Of(3)),
        "o" => return Some(Bits::Of(0)),
        _ => {}
    }
    let (mut bits, mut search) = (0, false);
    for letter in letters.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            'X' => search = true,
            _ => return None,
        }
    }
    Some(Bits::Fixed { bits, search })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_changes_them() {
        for (text, mode, is_dir, expected) in [
            ("644", 0o4755, false, 0o644),
            ("7777", 0, true, 0o7777),
            ("u=rwx,go=rx", 0o4600, false, 0o755),
            ("go-w", 0o777, false, 0o755),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o644, true, 0o755),
            ("+x", 0o644, false, 0o755),
            ("ug+s", 0o755, false, 0o6755),
            ("o+t", 0o777, true, 0o1777),
            ("g=u", 0o740, false, 0o770),
            ("u=rw-w+x", 0o000, false, 0o500),
            (",u=r,", 0o700, false, 0o400),
            ("o=", 0o777, false, 0o770),
        ] {
            let change = ModeChange::parse(text).unwrap();
            assert_eq!(change.apply(mode, is_dir), expected, "{text} {mode:o}");
        }
        for text in ["", ",", "u", "8", "10000", "u=q", "x=r", "u=rg", "-1"] {
            assert_eq!(ModeChange::parse(text), None, "{text}");
        }
    }
}
