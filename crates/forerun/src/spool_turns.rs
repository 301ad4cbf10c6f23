//! Shares one maker of temporary files among layers that are opened at once. Each layer appends to
//! what the one before wrote, so they take turns.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use forerun_io::Unpoisoned as _;
use forerun_vfs::MakeSpool;

/// Lets one layer at a time use the temporary file, from when it starts to write until it is open.
#[derive(Default)]
pub struct Turns {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// The temporary file of one layer. Dropping it ends the layer's turn.
pub struct LayerSpool {
    /// Waits for the layer's turn, then makes the temporary file.
    pub maker: Option<Arc<dyn MakeSpool>>,
    turn: Arc<Turn>,
}

struct Turn {
    turns: Arc<Turns>,
    is_ours: AtomicBool,
}

struct InTurn {
    make: Arc<dyn MakeSpool>,
    turn: Arc<Turn>,
}

impl Turns {
    /// Returns the handle of a layer, whose temporary file `make` makes.
    pub fn of_layer(self: &Arc<Self>, make: Option<Arc<dyn MakeSpool>>) -> LayerSpool {
        let turn = Arc::new(Turn {
            turns: Arc::clone(self),
            is_ours: AtomicBool::new(false),
        });
        let maker = make.map(|make| -> Arc<dyn MakeSpool> {
            let turn = Arc::clone(&turn);
            Arc::new(InTurn { make, turn })
        });
        LayerSpool { maker, turn }
    }
}

impl MakeSpool for InTurn {
    fn make(&self) -> io::Result<File> {
        let turn = &self.turn;
        if !turn.is_ours.load(Ordering::Acquire) {
            let taken = turn.turns.taken.lock().unpoisoned();
            let taken = turn.turns.freed.wait_while(taken, |taken| *taken);
            *taken.unpoisoned() = true;
            turn.is_ours.store(true, Ordering::Release);
        }
        self.make.make()
    }
}

impl Drop for LayerSpool {
    fn drop(&mut self) {
        if self.turn.is_ours.swap(false, Ordering::AcqRel) {
            *self.turn.turns.taken.lock().unpoisoned() = false;
            self.turn.turns.freed.notify_all();
        }
    }
}
