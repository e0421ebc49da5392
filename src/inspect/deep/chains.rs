//! Parents and children: each child that a record names exists, and names it as its parent.
//!
//! An ended child may have been pruned; then the audit log still knows it.

use super::gather::{Seen, Standing};
use super::{Fault, Invariant, Report};
use crate::spool::layout::Layout;

pub fn check(layout: &Layout, seen: &Seen, report: &mut Report) {
    for (id, standings) in &seen.ids {
        for standing in standings {
            let Some(record) = &standing.record else {
                continue;
            };
            for child in &record.children {
                if let Some(fault) = check_child(layout, seen, id, standing, child) {
                    let breach = fault.at(standing.path.clone(), standing.identity);
                    report.breaches.push(breach);
                }
            }
        }
    }
}

fn check_child(
    layout: &Layout,
    seen: &Seen,
    id: &str,
    parent: &Standing,
    child: &str,
) -> Option<Fault> {
    let record = parent.record.as_ref()?;
    if let Some(standing) = seen.of(child) {
        let named = standing.record.as_ref()?.parent.as_deref();
        return (named != Some(id)).then(|| {
            Fault::new(
                Invariant::Chain,
                format!("its child {child} names {named:?} as the parent"),
                format!("see both: handoffd chain {id}"),
            )
        });
    }
    // On its way between two folders, it was in neither when they were listed.
    if seen.exists(child) || layout.is_taken(child) || layout.submission(child).is_some() {
        return None;
    }
    // Decided, and its children are made before it moves.
    let to_be_made = record.to.is_some_and(|to| to != parent.state);
    let was_there = seen.audited.contains(child)
        || !seen.log_is_complete
        || record.refused.iter().any(|refused| refused == child);
    if to_be_made || (was_there && parent.state.is_final()) {
        return None;
    }
    Some(Fault::new(
        Invariant::Chain,
        format!("its child {child} is in no folder"),
        format!("restart the daemon to create the child; if that fails: handoffd retry {id}"),
    ))
}
