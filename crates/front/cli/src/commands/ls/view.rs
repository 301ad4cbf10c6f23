//! The forms of a listing: JSON, long lines, one name per line, columns.

use serde_json::{Map, Value};

use super::{Entry, LsArgs, grid, long};
use crate::context::Context;
use crate::error::Result;
use crate::escape::escape;
use crate::json;
use crate::output::{JsonArray, Output};

/// The output of a listing. Sections are written one after the other, and long ones in parts, so
/// that memory is bounded.
pub struct View {
    out: Output,
    form: Form,
    human: bool,
    sections: u64,
}

enum Form {
    Json(JsonArray),
    Long,
    Lines,
    Grid { width: usize },
}

impl View {
    pub fn new(context: &Context, args: &LsArgs) -> Result<Self> {
        let out = Output::stdout()?;
        let form = if context.global.json {
            Form::Json(JsonArray::default())
        } else if args.long {
            Form::Long
        } else if args.one || !out.is_terminal {
            Form::Lines
        } else {
            Form::Grid {
                width: crate::output::terminal_width(),
            }
        };
        Ok(Self {
            out,
            form,
            human: args.human,
            sections: 0,
        })
    }

    /// Starts a section: a directory under its heading, or the entries that the user named.
    pub fn section(&mut self, heading: Option<&Vec<u8>>) -> Result<()> {
        if matches!(self.form, Form::Json(_)) {
            return Ok(());
        }
        if self.sections > 0 {
            self.out.text("\n")?;
        }
        self.sections += 1;
        if let Some(heading) = heading {
            self.out.name(heading)?;
            self.out.text(":\n")?;
        }
        Ok(())
    }

    /// Shows entries of the section, aligned with each other. `dir` is their directory.
    pub fn entries(&mut self, dir: Option<&[u8]>, entries: &[Entry]) -> Result<()> {
        match &mut self.form {
            Form::Json(array) => {
                for entry in entries {
                    array.push(&mut self.out, &to_json(entry, dir))?;
                }
            }
            Form::Long => {
                for (prefix, entry) in long::prefixes(entries, self.human).iter().zip(entries) {
                    self.out.text(prefix)?;
                    self.out.text(" ")?;
                    self.out.name(&entry.name)?;
                    if let Some(target) = &entry.target {
                        self.out.text(" -> ")?;
                        self.out.name(target)?;
                    }
                    self.out.text("\n")?;
                }
            }
            Form::Lines => {
                for entry in entries {
                    self.out.name(&entry.name)?;
                    self.out.text("\n")?;
                }
            }
            Form::Grid { width } => {
                let names: Vec<_> = entries.iter().map(|entry| escape(&entry.name)).collect();
                for line in grid::lines(&names, *width) {
                    self.out.line(line)?;
                }
            }
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<()> {
        if let Form::Json(array) = &self.form {
            array.finish(&mut self.out)?;
        }
        self.out.finish()
    }
}

fn to_json(entry: &Entry, dir: Option<&[u8]>) -> Value {
    let mut object = Map::new();
    json::put_bytes(&mut object, "path", &entry.path(dir));
    object.insert("node".into(), entry.node.0.into());
    if let Some(metadata) = &entry.metadata {
        json::put_metadata(&mut object, metadata);
    }
    if let Some(target) = &entry.target {
        json::put_bytes(&mut object, "target", target);
    }
    object.into()
}
