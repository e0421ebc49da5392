//! A file system in memory, and the doors that processes have to it.
//!
//! A process has a [`Door`]. [`Memory::kill`] ends all processes and leaves what memory has;
//! [`Memory::cut_power`] leaves what the disk has, and a part of the rest that the seed chooses. A crash can also
//! come before or after any call ([`Faults`]): the call unwinds, and from then on the door is dead, so that no
//! `Drop` of the process can write any more.

mod bytes;
mod door;
mod faults;
mod journal;
mod opens;
mod tree;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dice::Dice;

pub use door::Door;
pub use faults::{Crashed, Faults, Moment};
pub use journal::Order;

use tree::Tree;

/// The machine: what outlives its processes. Clones are the same machine.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Mutex<Machine>>);

#[derive(Debug)]
struct Machine {
    tree: Tree,
    /// Processes up to this number are dead.
    dead: u64,
    next_process: u64,
    next_handle: u64,
    faults: Faults,
    /// Calls of processes that faults are for, since the faults were set.
    calls: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty file system.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Machine {
            tree: Tree::new(),
            dead: 0,
            next_process: 1,
            next_handle: 1,
            faults: Faults::default(),
            calls: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process, for which the faults are.
    pub fn door(&self) -> Door {
        self.new_door(true)
    }

    /// A process that nothing goes wrong for: a producer, a person, a checker.
    pub fn safe_door(&self) -> Door {
        self.new_door(false)
    }

    fn new_door(&self, is_doomed: bool) -> Door {
        let mut machine = self.lock();
        let process = machine.next_process;
        machine.next_process += 1;
        drop(machine);
        Door::new(self.clone(), process, is_doomed)
    }

    /// What goes wrong from now on; calls are counted from here.
    pub fn set_faults(&self, faults: Faults) {
        let mut machine = self.lock();
        machine.faults = faults;
        machine.calls = 0;
    }

    /// How many calls were made since the faults were set.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Ends all processes.
    pub fn kill(&self) {
        self.lock().kill();
    }

    /// Ends all processes, and leaves what survives of the files.
    pub fn cut_power(&self, dice: &mut Dice, order: Order) {
        let mut machine = self.lock();
        machine.kill();
        machine.tree.cut_power(dice, order);
    }

    /// Lets time pass, for the times of files.
    pub fn turn_clock(&self, ms: u32) {
        self.lock().tree.now_ns += i128::from(ms) * 1_000_000;
    }
}

impl Machine {
    fn kill(&mut self) {
        self.dead = self.next_process - 1;
        let dead = self.dead;
        let mut held = Vec::new();
        for (id, node) in self.tree.nodes_mut() {
            node.opens.end(dead);
            held.push(*id);
        }
        for id in held {
            self.tree.let_go(id);
        }
    }
}
