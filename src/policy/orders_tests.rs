//! Commands wait for their own handoff, and each is read as often as it has to be.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn name(n: usize) -> OsString {
    OsString::from(format!("{n}.json"))
}

fn names(orders: &mut Orders) -> Vec<OsString> {
    std::iter::from_fn(|| orders.take()).collect()
}

const NOBODY: fn(&OsStr) -> bool = |_| false;

#[test]
fn what_is_queued_or_being_read_is_not_read_twice() {
    let mut orders = Orders::default();
    orders.add(name(1));
    orders.add(name(1));
    assert_eq!(names(&mut orders), [name(1)]);
    orders.add(name(1));
    assert_eq!(orders.take(), None);
    orders.was_read(&name(1));
    orders.add(name(1));
    assert_eq!(orders.take(), Some(name(1)));
    orders.was_read(&name(1));
    assert!(orders.is_empty());
}

#[test]
fn only_so_many_are_under_way_and_a_waiting_one_is_not() {
    let mut orders = Orders::default();
    for n in 0..3 * UNDER_WAY {
        orders.add(name(n));
    }
    let first = names(&mut orders);
    assert_eq!(first.len(), UNDER_WAY);
    for (n, name) in first.iter().enumerate() {
        orders.was_read(name);
        match n % 2 {
            0 => orders.hold(name.clone(), "busy"),
            _ => orders.begin(name.clone(), Some("own")),
        }
    }
    assert_eq!(names(&mut orders).len(), UNDER_WAY / 2);
    for name in &first {
        orders.done(name);
    }
    assert_eq!(names(&mut orders).len(), UNDER_WAY / 2);
}

#[test]
fn a_handoff_wakes_its_own_commands_only() {
    let mut orders = Orders::default();
    for n in 0..4 {
        orders.hold(name(n), if n < 3 { "x" } else { "y" });
    }
    orders.wake("z", NOBODY);
    assert_eq!(orders.take(), None);
    orders.wake("x", |it| it == name(1));
    assert_eq!(names(&mut orders), [name(0), name(2)]);
    orders.wake("x", NOBODY);
    orders.wake("x", NOBODY);
    assert_eq!(names(&mut orders), [name(1)]);
    assert!(!orders.is_empty(), "one waits for y");
    orders.done(&name(3));
    orders.wake("y", NOBODY);
    assert_eq!(orders.take(), None);
}

#[derive(Debug, Clone)]
enum Step {
    Add(usize),
    Read,
    Hold(usize, usize),
    Begin(usize, usize),
    Done(usize),
    Wake(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..6_usize;
    prop_oneof![
        n.clone().prop_map(Step::Add),
        Just(Step::Read),
        (n.clone(), n.clone()).prop_map(|(name, id)| Step::Hold(name, id)),
        (n.clone(), n.clone()).prop_map(|(name, id)| Step::Begin(name, id)),
        n.clone().prop_map(Step::Done),
        n.prop_map(Step::Wake),
    ]
}

proptest! {
    /// Held against a model that looks at every command each time.
    #[test]
    fn nothing_is_forgotten_and_nothing_is_woken_for_another(steps in prop::collection::vec(step(), 0..200)) {
        let mut orders = Orders::default();
        let mut due: Vec<OsString> = Vec::new();
        let mut held: BTreeMap<OsString, String> = BTreeMap::new();
        let mut doing: BTreeSet<OsString> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Add(n) => {
                    orders.add(name(n));
                    if !due.contains(&name(n)) {
                        due.push(name(n));
                    }
                }
                Step::Read => {
                    let read = orders.take();
                    prop_assert_eq!(read.as_ref(), due.first());
                    if let Some(read) = read {
                        orders.was_read(&read);
                        due.remove(0);
                    }
                }
                Step::Hold(n, id) => {
                    orders.hold(name(n), &id.to_string());
                    held.insert(name(n), id.to_string());
                }
                Step::Begin(n, id) => {
                    orders.begin(name(n), Some(&id.to_string()));
                    held.insert(name(n), id.to_string());
                    doing.insert(name(n));
                }
                Step::Done(n) => {
                    orders.done(&name(n));
                    held.remove(&name(n));
                    doing.remove(&name(n));
                }
                Step::Wake(id) => {
                    orders.wake(&id.to_string(), NOBODY);
                    let id = id.to_string();
                    let woken = held.iter().filter(|(_, it)| **it == id);
                    let woken: Vec<OsString> = woken.map(|(name, _)| name.clone()).collect();
                    for name in woken {
                        held.remove(&name);
                        doing.remove(&name);
                        if !due.contains(&name) {
                            due.push(name);
                        }
                    }
                }
            }
            prop_assert_eq!(orders.is_empty(), due.is_empty() && held.is_empty() && doing.is_empty());
        }
    }
}
