//! The expected volume: every state that the operations so far passed through.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_io::usize_from;

use super::operation::bytes;
use super::{Operation, Place};

/// Number of a node in the model; the root is 0. Numbers are never reused.
pub(super) type Id = u32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VolumeNode {
    pub(super) parent: Id,
    pub(super) name: Vec<u8>,
    /// Bytes of a file; `None` for a directory.
    pub(super) content: Option<Arc<Vec<u8>>>,
}

pub(super) type State = BTreeMap<Id, Arc<VolumeNode>>;

/// The part of the tree that an operation makes durable when it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    Nothing,
    Everything,
    /// Name, contents and length.
    Node(Id),
    /// The names of these nodes, which `dirsync` guarantees.
    Names(Vec<Id>),
}

/// All states. State `n` follows `n` operations.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) states: Vec<State>,
    pub(super) promises: Vec<Promise>,
    next: Id,
    first_operation: u32,
    dirsync: bool,
}

/// The kinds of [`forerun_vfs::Error`] that operations may meet, by [`forerun_vfs::Error::kind`].
pub(super) type Refusal = &'static str;

impl Model {
    /// Creates an empty volume. With `dirsync`, each operation on names is durable when it returns.
    pub fn new(dirsync: bool) -> Self {
        Self {
            states: vec![State::new()],
            promises: Vec::new(),
            next: 1,
            first_operation: 0,
            dirsync,
        }
    }

    /// Creates a model that starts, durably, in the current state.
    pub fn go_on(&self, dirsync: bool) -> Self {
        Self {
            states: vec![self.now().clone()],
            promises: Vec::new(),
            next: self.next,
            first_operation: self.next_operation(),
            dirsync,
        }
    }

    pub(super) fn next_operation(&self) -> u32 {
        let done = u32::try_from(self.promises.len()).expect("few operations");
        self.first_operation + done
    }

    pub(super) fn now(&self) -> &State {
        self.states.last().expect("there is a first state")
    }

    /// Applies the operation to the model, or returns the error with which it should fail.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<(), Refusal> {
        let number = self.next_operation();
        let mut state = self.now().clone();
        match self.change(&mut state, operation, number) {
            Ok(promise) => self.push(state, promise),
            Err(refusal) => {
                self.refuse();
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Records that the operation changed nothing.
    pub(super) fn refuse(&mut self) {
        self.push(self.now().clone(), Promise::Nothing);
    }

    /// Reverts the last operation, as if it had changed nothing.
    pub(super) fn take_back(&mut self) {
        self.states.pop();
        self.promises.pop();
        self.refuse();
    }

    fn push(&mut self, state: State, promise: Promise) {
        self.states.push(state);
        self.promises.push(promise);
    }

    fn change(
        &mut self,
        state: &mut State,
        operation: &Operation,
        number: u32,
    ) -> Result<Promise, Refusal> {
        match operation {
            Operation::Create(at) => self.make(state, at, Some(Arc::default())),
            Operation::Mkdir(at) => self.make(state, at, None),
            Operation::Write { file, offset, len } => {
                let data = bytes(number, *offset, *len);
                write(state, file, &data, usize_from(*offset))?;
                Ok(Promise::Nothing)
            }
            Operation::Truncate { file, len } => {
                let (id, mut content) = contents(state, file)?;
                Arc::make_mut(&mut content).resize(usize_from(*len), 0);
                set_content(state, id, content);
                Ok(Promise::Nothing)
            }
            Operation::Rename { from, to } => {
                let names = rename(state, from, to)?;
                Ok(self.names(names))
            }
            Operation::Unlink(at) => {
                let id = find(state, at)?;
                if state[&id].content.is_none() {
                    return Err("is_a_directory");
                }
                state.remove(&id);
                Ok(self.names(vec![id]))
            }
            Operation::Rmdir(at) => {
                let id = find(state, at)?;
                if state[&id].content.is_some() {
                    return Err("not_a_directory");
                }
                empty(state, id)?;
                state.remove(&id);
                Ok(self.names(vec![id]))
            }
            Operation::Sync(at) => Ok(Promise::Node(find(state, at)?)),
            Operation::SyncAll => Ok(Promise::Everything),
        }
    }

    fn names(&self, ids: Vec<Id>) -> Promise {
        if self.dirsync {
            Promise::Names(ids)
        } else {
            Promise::Nothing
        }
    }

    fn make(
        &mut self,
        state: &mut State,
        at: &Place,
        content: Option<Arc<Vec<u8>>>,
    ) -> Result<Promise, Refusal> {
        let (parent, name) = parent(state, at)?;
        if find(state, at).is_ok() {
            return Err("exists");
        }
        let id = self.next;
        self.next += 1;
        let node = VolumeNode {
            parent,
            name,
            content,
        };
        state.insert(id, Arc::new(node));
        Ok(self.names(vec![id]))
    }
}

/// Finds the node of a path; 0 for the root.
pub(super) fn find(state: &State, at: &Place) -> Result<Id, Refusal> {
    let mut dir = 0;
    for name in at.names() {
        if dir != 0 && state[&dir].content.is_some() {
            return Err("not_a_directory");
        }
        let child = state
            .iter()
            .find(|(_, node)| node.parent == dir && node.name == name);
        dir = *child.ok_or("not_found")?.0;
    }
    Ok(dir)
}

fn parent(state: &State, at: &Place) -> Result<(Id, Vec<u8>), Refusal> {
    let (dir, name) = at.split();
    let id = find(state, &dir)?;
    if id != 0 && state[&id].content.is_some() {
        return Err("not_a_directory");
    }
    Ok((id, name.to_vec()))
}

fn empty(state: &State, dir: Id) -> Result<(), Refusal> {
    if state.values().any(|node| node.parent == dir) {
        return Err("not_empty");
    }
    Ok(())
}

fn contents(state: &State, file: &Place) -> Result<(Id, Arc<Vec<u8>>), Refusal> {
    let id = find(state, file)?;
    let content = state.get(&id).and_then(|node| node.content.clone());
    Ok((id, content.ok_or("is_a_directory")?))
}

fn set_content(state: &mut State, id: Id, content: Arc<Vec<u8>>) {
    let node = state.get_mut(&id).expect("the file was found");
    Arc::make_mut(node).content = Some(content);
}

fn write(state: &mut State, file: &Place, data: &[u8], offset: usize) -> Result<(), Refusal> {
    let (id, mut content) = contents(state, file)?;
    let bytes = Arc::make_mut(&mut content);
    let end = offset + data.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[offset..end].copy_from_slice(data);
    set_content(state, id, content);
    Ok(())
}

fn rename(state: &mut State, from: &Place, to: &Place) -> Result<Vec<Id>, Refusal> {
    // The order of rename(2): both directories are looked up before the last names.
    parent(state, from)?;
    let (parent, name) = parent(state, to)?;
    let id = find(state, from)?;
    let mut above = parent;
    while above != 0 {
        if above == id {
            return Err("into_itself");
        }
        above = state[&above].parent;
    }
    let mut changed = vec![id];
    if let Ok(other) = find(state, to) {
        if other == id {
            return Ok(changed);
        }
        match (&state[&id].content, &state[&other].content) {
            (Some(_), None) => return Err("is_a_directory"),
            (None, Some(_)) => return Err("not_a_directory"),
            (None, None) => empty(state, other)?,
            (Some(_), Some(_)) => {}
        }
        state.remove(&other);
        changed.push(other);
    }
    let node = Arc::make_mut(state.get_mut(&id).expect("the node was found"));
    node.parent = parent;
    node.name = name;
    Ok(changed)
}
