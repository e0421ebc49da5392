//! The line to the keeper: reaching one, and hearing what it reports.
//!
//! Reports are read by a task on the loop's own thread: between the end of an attempt and the
//! start of the next stands no other thread. Nothing here waits for a socket.

use std::io;
use std::path::Path;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::event::Event;
use crate::engine::world::World;
use crate::keeper::wire::{Held, Report};
use crate::keeper::{Client, Reader, Setup};
use crate::spool::layout::Layout;

/// Reaches the keeper of this root, or starts one.
pub fn connect(program: &Path, layout: &Layout) -> io::Result<(Client, Reader)> {
    let setup = Setup {
        program: program.to_owned(),
        run_dir: layout.run(),
        root: layout.root().to_owned(),
        no_cgroup: std::env::var_os("HANDOFFD_NO_CGROUP").is_some(),
    };
    setup.connect_or_start()
}

/// Asks the keeper what it holds; other reports that come first are passed on.
pub fn inventory(
    keeper: &Client,
    reader: &mut Reader,
    events: &UnboundedSender<Event>,
) -> io::Result<Vec<Held>> {
    keeper.inventory()?;
    loop {
        match reader.next()? {
            Report::Inventory { entries } => return Ok(entries),
            other => drop(events.send(Event::Keeper(other))),
        }
    }
}

/// Passes on what the keeper reports from now on, and that it is gone when it is.
pub fn listen(world: &World, reader: Reader) -> io::Result<()> {
    let _inside = world.runtime.enter();
    // SAFETY: the reader owns its socket, and keeps the same one until it is dropped.
    let line = unsafe { AsyncFd::register_with_interest(reader, Interest::READABLE) }?;
    world.runtime.spawn(hear(line, world.events.clone()));
    Ok(())
}

async fn hear(mut line: AsyncFd<Reader>, events: UnboundedSender<Event>) {
    while let Ok(mut ready) = line.readable_mut().await {
        match ready.get_inner_mut().arrived() {
            Ok(None) => ready.clear_ready(),
            // Nothing follows from these; the loop is not woken for them.
            Ok(Some(Report::Started { .. } | Report::Hello { .. })) => {}
            Ok(Some(report)) => {
                if events.send(Event::Keeper(report)).is_err() {
                    return;
                }
            }
            Err(_) => break,
        }
    }
    let _ = events.send(Event::KeeperLost);
}

/// Connects to a new keeper after the old one was lost.
pub fn reconnect(world: &World) -> io::Result<(u64, Vec<Held>)> {
    let (keeper, mut reader) = connect(&world.program, &world.layout)?;
    let entries = inventory(&keeper, &mut reader, &world.events)?;
    keeper.inherit(&world.keeper());
    let count = world.set_keeper(keeper);
    listen(world, reader)?;
    Ok((count, entries))
}
