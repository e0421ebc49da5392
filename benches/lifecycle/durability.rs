//! Durable, relaxed and the limits in one table, from what the other sections measured.

use std::io;

use crate::results::{Figure, Results, Section};

pub fn run(section: &mut Section, results: &Results) -> io::Result<()> {
    let find = |key: &str| {
        let value = results.value(key);
        value.ok_or_else(|| io::Error::other(format!("{key} was not measured; run all")))
    };
    let serial = find("limit.synced.1")?;
    let shared = find("limit.synced.8")?;
    for at_once in [1, 2, 4, 8] {
        let durable = find(&format!("rate.{at_once}.durable"))?;
        let relaxed = find(&format!("rate.{at_once}.relaxed"))?;
        let what = format!("handoffs, {at_once} at once, durable");
        let key = format!("durability.{at_once}");
        section.add(Figure::new(key, what, durable, "/s").beside("relaxed", relaxed));
    }
    // Two files are written for a handoff, and each would wait for its own flushes.
    let what = "handoffs, 2 at once, durable";
    let durable = find("rate.2.durable")?;
    for (key, said, limit) in [
        (
            "serial",
            "if each file were synced by itself, one after the other",
            serial / 2.0,
        ),
        (
            "shared",
            "if 8 threads synced their files at the same time",
            shared / 2.0,
        ),
    ] {
        let key = format!("durability.{key}");
        section.add(Figure::new(key, what, durable, "/s").beside(said, limit));
    }
    let appended = find("limit.append.1")?;
    let key = "durability.append";
    let said = "appends with fdatasync, 1 thread: a journal's limit without batches";
    section.add(Figure::new(key, what, durable, "/s").beside(said, appended));
    Ok(())
}
