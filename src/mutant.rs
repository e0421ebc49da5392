//! Defects that are planted on purpose, to see that the harnesses of `tests/torture` can fail.
//!
//! There are none in a build without the feature `mutants`: there, [`is`] is a constant. In a
//! build with it, `HANDOFFD_MUTANT=<name>` switches one on. `tests/torture/mutants.rs` has the
//! list, and for each the harness that must see it.

use std::process::Command;

#[cfg(feature = "mutants")]
const VARIABLE: &str = "HANDOFFD_MUTANT";

/// Whether this defect is switched on.
#[cfg(feature = "mutants")]
pub fn is(name: &str) -> bool {
    std::env::var_os(VARIABLE).is_some_and(|chosen| chosen == name)
}

/// Whether this defect is switched on: never, in this build.
#[cfg(not(feature = "mutants"))]
pub const fn is(_name: &str) -> bool {
    false
}

/// Tells the keeper, which is started without the daemon's environment.
#[cfg(feature = "mutants")]
pub fn pass_on(command: &mut Command) {
    if let Some(chosen) = std::env::var_os(VARIABLE) {
        command.env(VARIABLE, chosen);
    }
}

/// There is nothing to tell in this build.
#[cfg(not(feature = "mutants"))]
pub const fn pass_on(_command: &mut Command) {}
