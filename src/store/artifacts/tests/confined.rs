//! Nothing outside the root is read or written, whatever stands in the way.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::*;
use super::{both, rel};

const SECRET: &[u8] = b"secret";

fn fifo(path: &Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
}

#[test]
fn what_is_no_file_is_said_in_words_and_never_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    fs::create_dir_all(root.join("artifacts/folder")).unwrap();
    fs::write(&outside, SECRET).unwrap();
    let at = |name: &str| root.join("artifacts").join(name);
    fs::write(at("file"), "12345").unwrap();
    fifo(&at("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink("/etc/passwd", at("absolute")).unwrap();
    symlink("../../outside", at("upwards")).unwrap();
    symlink("..", at("up")).unwrap();
    symlink("../..", at("upper")).unwrap();
    symlink("file", at("inside")).unwrap();
    symlink(at("file"), at("inside-absolute")).unwrap();
    symlink("../artifacts/folder/../file", at("winding")).unwrap();
    symlink("nothing", at("dangling")).unwrap();
    symlink("circle", at("circle")).unwrap();
    symlink("pipe", at("to-pipe")).unwrap();
    let file = Presence::File { size_bytes: 5 };
    let out = "a symlink that leads out of the root";
    let other = |what: &str| Presence::Other(what.to_owned());
    for artifacts in both(&root) {
        for (name, presence) in [
            ("file", file.clone()),
            ("folder", Presence::Folder),
            ("none", Presence::Missing),
            ("file/below", Presence::Missing),
            ("pipe", other("a FIFO")),
            ("socket", other("a socket")),
            ("absolute", other(out)),
            ("upwards", other(out)),
            ("up/up", Presence::Missing),
            ("upper", other(out)),
            ("upper/outside", other(out)),
            ("up/artifacts/file", file.clone()),
            ("inside", file.clone()),
            ("inside-absolute", file.clone()),
            ("winding", file.clone()),
            ("dangling", Presence::Missing),
            ("circle", other("a symlink loop")),
            ("to-pipe", other("a FIFO")),
        ] {
            let path = rel(&format!("artifacts/{name}"));
            assert_eq!(artifacts.presence(&path), presence, "{name}");
            let is_file = matches!(presence, Presence::File { .. });
            assert_eq!(artifacts.measure(&path).is_ok(), is_file, "{name}");
            assert_eq!(artifacts.read(&path, 5).is_ok(), is_file, "{name}");
        }
        for (name, said) in [
            ("none", "does not exist"),
            ("folder", "is a folder"),
            ("pipe", "is a FIFO"),
            ("upwards", "is a symlink that leads out of the root"),
        ] {
            let path = rel(&format!("artifacts/{name}"));
            assert_eq!(artifacts.measure(&path).unwrap_err(), said);
        }
    }
}

#[test]
fn nothing_is_written_by_way_of_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    for artifacts in both(&root) {
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("artifacts/folder")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        symlink(&outside, root.join("artifacts/out")).unwrap();
        symlink("folder", root.join("artifacts/in")).unwrap();
        symlink(outside.join("new"), root.join("artifacts/link")).unwrap();
        for name in ["out/x", "out/deep/x", "in/x"] {
            let path = rel(&format!("artifacts/{name}"));
            match artifacts.write(&path, b"x", true) {
                Err(WriteError::Refused(said)) => assert!(said.ends_with("is a symlink"), "{said}"),
                other => panic!("{name}: {other:?}"),
            }
            assert!(artifacts.make_folder_for(&path).is_err(), "{name}");
        }
        let link = rel("artifacts/link");
        let kept = artifacts.write(&link, b"x", false);
        assert!(matches!(kept, Err(WriteError::Exists)));
        artifacts.write(&link, b"x", true).unwrap();
        assert!(root.join("artifacts/link").is_file(), "the link is gone");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}

/// Ends the other thread also if this one panics.
struct EndWith<'a>(&'a AtomicBool);

impl Drop for EndWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Somebody exchanges a folder for a link that leads out, and back, as fast as it goes.
#[test]
fn a_folder_that_is_swapped_for_a_link_leads_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let outside = dir.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("known"), SECRET).unwrap();
    for mut artifacts in both(&root) {
        artifacts.durability = Durability::Relaxed;
        let _ = fs::remove_dir_all(&root);
        let (folder, aside) = (root.join("artifacts/a"), root.join("artifacts/aside"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("known"), "harmless").unwrap();
        symlink(&outside, &aside).unwrap();
        let done = AtomicBool::new(false);
        let (mut inside, mut refused) = (0, 0);
        let swaps = std::thread::scope(|scope| {
            let swapper = scope.spawn(|| {
                let mut swaps = 0u32;
                while !done.load(Ordering::Relaxed) || swaps < 5000 {
                    crate::durable::exchange(&folder, &aside).unwrap();
                    swaps += 1;
                }
                swaps
            });
            let end = EndWith(&done);
            for n in 0..3000 {
                let path = rel(&format!("artifacts/a/deep-{}/w{n}", n % 7));
                match artifacts.write(&path, b"w", n % 2 == 0) {
                    Ok(_) => inside += 1,
                    Err(_) => refused += 1,
                }
                let _ = artifacts.write(&rel("artifacts/a/known"), b"harmless", true);
                match artifacts.read(&rel("artifacts/a/known"), 100) {
                    Ok(bytes) => assert_eq!(bytes, b"harmless"),
                    Err(said) => assert_ne!(said, "is a folder"),
                }
                if let Ok(measured) = artifacts.measure(&rel("artifacts/a/known")) {
                    assert_eq!(measured.size_bytes, 8);
                }
            }
            drop(end);
            swapper.join().unwrap()
        });
        assert!(
            swaps >= 5000 && inside > 0 && refused > 0,
            "{swaps} {inside} {refused}"
        );
        assert_eq!(fs::read(outside.join("known")).unwrap(), SECRET);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }
}
