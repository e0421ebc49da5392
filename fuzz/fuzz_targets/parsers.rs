//! One input for one parser: the one that `FUZZ_PARSER` names, else the one that the first byte
//! picks. Names are those of `ALL` in `targets.rs`.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "shares and cleaning are for the harness without coverage")]
#[path = "../../tests/torture/parsers/targets.rs"]
mod targets;

fn named() -> Option<&'static targets::Target> {
    static NAMED: OnceLock<Option<&targets::Target>> = OnceLock::new();
    *NAMED.get_or_init(|| {
        let name = std::env::var("FUZZ_PARSER").ok()?;
        let found = targets::ALL.iter().find(|target| target.name == name);
        Some(found.unwrap_or_else(|| panic!("no parser is called {name}")))
    })
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = named() {
        (target.run)(bytes);
    } else if let Some((first, bytes)) = bytes.split_first() {
        (targets::ALL[usize::from(*first) % targets::ALL.len()].run)(bytes);
    }
});
