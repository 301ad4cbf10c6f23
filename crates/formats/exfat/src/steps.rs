//! Paths of a tree walk, without a copy of the whole path per file.

use std::rc::Rc;

/// A directory or file of a walk. It links to its parent.
pub struct Step {
    above: Option<Rc<Self>>,
    name: Vec<u8>,
    /// Number of parent directories, without the root.
    pub depth: usize,
}

impl Step {
    /// Returns the step for a name in `above`, or in the root if `above` is `None`.
    pub fn below(above: Option<&Rc<Self>>, name: Vec<u8>) -> Rc<Self> {
        Rc::new(Self {
            depth: above.map_or(1, |above| above.depth + 1),
            above: above.cloned(),
            name,
        })
    }

    /// Returns the path without a leading slash.
    pub fn path(&self) -> Vec<u8> {
        let mut names = vec![self.name.as_slice()];
        let mut above = self.above.as_deref();
        while let Some(step) = above {
            names.push(&step.name);
            above = step.above.as_deref();
        }
        names.reverse();
        names.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let a = Step::below(None, b"a".to_vec());
        let b = Step::below(Some(&a), b"b".to_vec());
        let c = Step::below(Some(&b), b"c".to_vec());
        assert_eq!((c.path(), c.depth), (b"a/b/c".to_vec(), 3));
        assert_eq!(a.path(), b"a");
    }
}
