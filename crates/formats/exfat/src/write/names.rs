//! Converts the names of a tree to UTF-16, and collects complaints about names that the format
//! cannot store.

use std::collections::BTreeMap;

use forerun_build::BuildError;

use super::cannot;
use crate::name;
use crate::upcase::Upcase;

/// Maximum number of listed names. Further ones are only counted.
const LISTED: usize = 100;

#[derive(Default)]
pub struct Complaints {
    listed: Vec<String>,
    more: usize,
}

impl Complaints {
    fn add(&mut self, complaint: String) {
        if self.listed.len() < LISTED {
            self.listed.push(complaint)
        } else {
            self.more += 1
        }
    }

    /// Fails with all complaints, if there are any.
    pub fn end(mut self) -> Result<(), BuildError> {
        if self.listed.is_empty() {
            return Ok(());
        }
        let count = self.listed.len() + self.more;
        if self.more > 0 {
            self.listed.push(format!("and {} more", self.more));
        }
        let what = if count == 1 { "a name" } else { "names" };
        let list = self.listed.join("\n  ");
        Err(cannot(format!("{what} it has no room for:\n  {list}")))
    }
}

pub struct Directory<'a> {
    path: &'a [u8],
    upcase: &'a Upcase,
    keep_last_dots: bool,
    /// The names by their upper case.
    seen: BTreeMap<Vec<u16>, Vec<u8>>,
}

impl<'a> Directory<'a> {
    pub const fn new(path: &'a [u8], upcase: &'a Upcase, keep_last_dots: bool) -> Self {
        Self {
            path,
            upcase,
            keep_last_dots,
            seen: BTreeMap::new(),
        }
    }

    /// Returns the UTF-16 units of a name, or records a complaint.
    pub fn take(&mut self, name: &[u8], complaints: &mut Complaints) -> Option<Vec<u16>> {
        let shown = |name: &[u8]| {
            let path = [self.path, name].concat();
            String::from_utf8_lossy(&path).into_owned()
        };
        let units = match name::for_new(name, true) {
            Ok(units) => units,
            Err(error) => {
                complaints.add(format!("{}: {error}", shown(name)));
                return None;
            }
        };
        if name.ends_with(b".") && !self.keep_last_dots {
            let path = shown(name);
            complaints.add(format!(
                "{path}: ends with a dot, which other systems leave out"
            ));
            return None;
        }
        let folded = self.upcase.name(&units);
        if let Some(other) = self.seen.get(&folded) {
            let (path, other) = (shown(name), shown(other));
            complaints.add(format!("{path}: differs only in case from {other}"));
            return None;
        }
        self.seen.insert(folded, name.to_vec());
        Some(units)
    }
}
