//! One dirty sector, and the groups that its bytes belong to.

use super::Group;

/// A sector that differs from the device.
#[derive(Debug)]
pub struct Sector {
    /// The bytes that readers see, with all changes.
    current: Box<[u8]>,
    /// Counts changes, so that a commit can recognise changes made after it began.
    clock: u64,
    parts: Parts,
}

#[derive(Debug)]
enum Parts {
    /// All changes are of one group, as in nearly all cases.
    One(Group),
    /// Changes of several groups, over the sector as it is on the device.
    Many { base: Box<[u8]>, layers: Vec<Layer> },
}

/// The changes that one group made.
#[derive(Debug)]
struct Layer {
    group: Group,
    values: Box<[u8]>,
    /// For each byte, the clock of this group's last change; 0 for none.
    stamps: Box<[u64]>,
}

impl Layer {
    fn new(group: Group, len: usize) -> Self {
        Self {
            group,
            values: vec![0; len].into(),
            stamps: vec![0; len].into(),
        }
    }

    fn set(&mut self, at: usize, value: u8, stamp: u64) {
        if let (Some(byte), Some(when)) = (self.values.get_mut(at), self.stamps.get_mut(at)) {
            (*byte, *when) = (value, stamp);
        }
    }

    /// Takes over the changes of another layer that are newer than its own.
    fn overlay(&mut self, other: &Self) {
        let changes = other.values.iter().zip(&other.stamps).enumerate();
        for (at, (value, stamp)) in changes {
            if self.stamps.get(at).is_some_and(|own| own < stamp) {
                self.set(at, *value, *stamp);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.stamps.iter().all(|&stamp| stamp == 0)
    }
}

impl Sector {
    /// Creates a sector that has `content` on the device, and that `group` is about to change.
    pub fn new(group: Group, content: Box<[u8]>) -> Self {
        Self {
            current: content,
            clock: 1,
            parts: Parts::One(group),
        }
    }

    /// Returns the bytes that readers see.
    pub fn current(&self) -> &[u8] {
        &self.current
    }

    /// Returns the number of changes so far.
    pub const fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns whether only `group` has changed the sector. Another change by this group then does
    /// not need the content on the device.
    pub fn is_only_of(&self, group: Group) -> bool {
        matches!(self.parts, Parts::One(only) if only == group)
    }

    pub fn is_of(&self, group: Group) -> bool {
        match &self.parts {
            Parts::One(only) => *only == group,
            Parts::Many { layers, .. } => layers.iter().any(|layer| layer.group == group),
        }
    }

    pub const fn is_shared(&self) -> bool {
        matches!(self.parts, Parts::Many { .. })
    }

    /// Overwrites the bytes from `at` on with `data`. `device` is the sector as it is on the
    /// device; needed if so far only one other group has changed the sector.
    pub fn change(&mut self, group: Group, at: usize, data: &[u8], device: Option<Box<[u8]>>) {
        let before = self.clock;
        self.clock += 1;
        if let (Parts::One(first), Some(base)) = (&self.parts, device)
            && *first != group
        {
            let mut layer = Layer::new(*first, self.current.len());
            for (at, (now, then)) in self.current.iter().zip(&base).enumerate() {
                if now != then {
                    layer.set(at, *now, before);
                }
            }
            let layers = vec![layer];
            self.parts = Parts::Many { base, layers };
        }
        if let Parts::Many { layers, .. } = &mut self.parts {
            let known = layers.iter().position(|layer| layer.group == group);
            let index = known.unwrap_or_else(|| {
                layers.push(Layer::new(group, self.current.len()));
                layers.len() - 1
            });
            if let Some(layer) = layers.get_mut(index) {
                for (offset, value) in data.iter().enumerate() {
                    layer.set(at + offset, *value, self.clock);
                }
            }
        }
        for (byte, value) in self.current.iter_mut().skip(at).zip(data) {
            *byte = *value;
        }
    }

    pub fn join(&mut self, from: Group, into: Group) {
        match &mut self.parts {
            Parts::One(only) if *only == from => *only = into,
            Parts::One(_) => {}
            Parts::Many { layers, .. } => {
                let Some(index) = layers.iter().position(|layer| layer.group == from) else {
                    return;
                };
                let mut moved = layers.swap_remove(index);
                moved.group = into;
                match layers.iter_mut().find(|layer| layer.group == into) {
                    Some(layer) => layer.overlay(&moved),
                    None => layers.push(moved),
                }
            }
        }
    }

    /// Returns the sector as it must be on the device once `group` is written, after the groups
    /// that were committed before it.
    pub fn composed(&self, group: Group) -> Box<[u8]> {
        let Parts::Many { base, layers } = &self.parts else {
            return self.current.clone();
        };
        let mut composed = base.clone();
        if let Some(layer) = layers.iter().find(|layer| layer.group == group) {
            let changes = layer.values.iter().zip(&layer.stamps);
            for (byte, (value, stamp)) in composed.iter_mut().zip(changes) {
                if *stamp > 0 {
                    *byte = *value;
                }
            }
        }
        composed
    }

    /// Records that `group` was committed as `written`, which [`composed`](Self::composed) returned
    /// when the clock was `clock`. Returns whether the sector is clean now.
    pub fn committed(&mut self, group: Group, written: &[u8], clock: u64) -> bool {
        match &mut self.parts {
            // Changes made since then are kept, whatever their group.
            Parts::One(_) => self.clock == clock,
            Parts::Many { base, layers } => {
                base.copy_from_slice(written);
                let Some(index) = layers.iter().position(|layer| layer.group == group) else {
                    return layers.is_empty();
                };
                let done = layers.swap_remove(index);
                let mut later = Layer::new(group, written.len());
                for (at, (value, stamp)) in done.values.iter().zip(&done.stamps).enumerate() {
                    if *stamp > clock {
                        later.set(at, *value, *stamp);
                    }
                    // The commit overtakes an older change of the same byte by another group.
                    for layer in layers.iter_mut() {
                        if let Some(when) = layer.stamps.get_mut(at)
                            && *when < *stamp
                        {
                            *when = 0;
                        }
                    }
                }
                layers.push(later);
                layers.retain(|layer| !layer.is_empty());
                if let [only] = layers.as_slice() {
                    self.parts = Parts::One(only.group);
                    return false;
                }
                layers.is_empty()
            }
        }
    }
}
