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
        run_dir: layout.run().to_path_buf(),
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
    // What came together with the inventory was read with it: the socket says nothing of it.
    let mut heard = pass_on(line.get_mut(), &events);
    while heard.is_ok()
        && let Ok(mut ready) = line.readable_mut().await
    {
        heard = pass_on(ready.get_inner_mut(), &events);
        ready.clear_ready();
    }
    let _ = events.send(Event::KeeperLost);
}

/// Passes on all that has arrived; an error if no more will come.
fn pass_on(reader: &mut Reader, events: &UnboundedSender<Event>) -> io::Result<()> {
    while let Some(report) = reader.arrived()? {
        // Nothing follows from these; the loop is not woken for them.
        if matches!(report, Report::Started { .. } | Report::Hello { .. }) {
            continue;
        }
        let sent = events.send(Event::Keeper(report));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::frame;
    use crate::keeper::wire::{Exit, Key};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn an_end_that_came_with_the_inventory_is_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let flags = SocketFlags::CLOEXEC;
        let (keeper, ours) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let ended = Report::Ended {
            key: Key::new("x", 1),
            exit: Exit::Code(0),
            why: None,
        };
        let inventory = Report::Inventory { entries: vec![] };
        let both = [&inventory, &ended].map(|report| frame::encode(report).unwrap());
        frame::send(&keeper, &both.concat(), &[]).unwrap();
        runtime.block_on(async {
            let (events, mut inbox) = tokio::sync::mpsc::unbounded_channel();
            let mut reader = Reader::on(ours);
            assert_eq!(reader.next().unwrap(), inventory);
            // SAFETY: the reader owns its socket.
            let line = unsafe { AsyncFd::register_with_interest(reader, Interest::READABLE) };
            tokio::spawn(hear(line.unwrap(), events));
            let heard = inbox.recv().await;
            assert!(matches!(heard, Some(Event::Keeper(report)) if report == ended));
            drop(keeper);
            assert!(matches!(inbox.recv().await, Some(Event::KeeperLost)));
        });
    }
}
