//! The archive by itself: round trips, look-ups, and what a crash may leave.

use super::*;
use crate::clock::Wall;

fn archive() -> (tempfile::TempDir, Archive) {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::new(&dir.path().join("archive"));
    (dir, archive)
}

fn packed(id: &str, record: &[u8]) -> Packed {
    Packed {
        id: id.to_owned(),
        state: State::Completed,
        modified: Wall(1_700_000_000_123),
        record: record.to_vec(),
        files: Vec::new(),
    }
}

fn pack(archive: &Archive, handoffs: &[Packed]) {
    let _lock = archive.lock().unwrap();
    archive.pack("2026-11-16", handoffs).unwrap();
}

#[test]
fn everything_comes_back_to_the_byte() {
    let (_dir, archive) = archive();
    let mut failed = packed("b", b"not even a document");
    failed.state = State::Failed;
    failed.files = vec![
        ("b.yaml".to_owned(), "a: \"\u{e9}\"\n".as_bytes().to_vec()),
        ("b.1.log".to_owned(), vec![0, 159, 146, 150]),
    ];
    let numbers = "{\n  \"a\": 1.0,\n  \"b\": 1e400,\n  \"c\": 12345678901234567890123\n}\n";
    let handoffs = [
        packed("a", numbers.as_bytes()),
        failed,
        packed("c", b"{\"compact\":true}"),
        packed("d", b"\xff\xfe"),
    ];
    pack(&archive, &handoffs);
    for handoff in &handoffs {
        assert_eq!(archive.find(&handoff.id).unwrap().as_ref(), Some(handoff));
        assert_eq!(archive.state_of(&handoff.id), Some(handoff.state));
    }
    assert_eq!(archive.find("e").unwrap(), None);
    assert_eq!(archive.state_of("e"), None);
}

#[test]
fn many_are_found_and_the_newest_of_one_id_counts() {
    let (_dir, archive) = archive();
    let text = "x".repeat(1000);
    let all: Vec<Packed> = (0..1000)
        .map(|n| packed(&format!("job-{n}"), format!("{n} {text}").as_bytes()))
        .collect();
    pack(&archive, &all[..700]);
    pack(&archive, &all[300..]);
    pack(&archive, &[packed("job-5", b"again")]);
    for n in [0, 299, 300, 699, 700, 999] {
        assert_eq!(archive.find(&format!("job-{n}")).unwrap().unwrap(), all[n]);
    }
    assert_eq!(archive.find("job-5").unwrap().unwrap().record, b"again");
    let mut count = 0;
    archive
        .each(|_| {
            count += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(count, 1401);
}

#[test]
fn row_40_an_index_that_is_lost_damaged_or_behind_is_made_anew() {
    let (_dir, archive) = archive();
    pack(&archive, &[packed("a", b"1")]);
    let before = fs::read(archive.index_path()).unwrap();
    pack(&archive, &[packed("b", b"2")]);
    let after = fs::read(archive.index_path()).unwrap();
    let torn = after[..after.len() - 5].to_vec();
    for left in [None, Some(before), Some(torn), Some(b"nonsense".to_vec())] {
        match left {
            None => fs::remove_file(archive.index_path()).unwrap(),
            Some(bytes) => fs::write(archive.index_path(), bytes).unwrap(),
        }
        for _ in 0..2 {
            archive.mend().unwrap();
            assert_eq!(fs::read(archive.index_path()).unwrap(), after);
        }
    }
    let newer = b"handoffd archive index 2".repeat(4);
    fs::write(archive.index_path(), newer).unwrap();
    assert!(archive.mend().is_err(), "a newer format is left alone");
    assert!(archive.find("a").is_err());
}

#[test]
fn row_39_what_was_being_packed_is_packed_anew() {
    let (_dir, archive) = archive();
    pack(&archive, &[packed("a", b"1")]);
    fs::write(archive.dir.join("packing.tmp"), "half a fi").unwrap();
    fs::write(archive.dir.join("index.tmp"), "half an in").unwrap();
    archive.mend().unwrap();
    assert_eq!(archive.find("a").unwrap().unwrap().record, b"1");
    pack(&archive, &[packed("b", b"2")]);
    assert_eq!(archive.find("b").unwrap().unwrap().record, b"2");
    assert!(!archive.dir.join("packing.tmp").exists());
}

#[test]
fn a_packed_file_is_an_ordinary_gzip_file_of_lines() {
    let (_dir, archive) = archive();
    pack(
        &archive,
        &[packed("a", b"{\n  \"x\": 1\n}\n"), packed("b", b"2")],
    );
    let path = archive.dir.join("packed-2026-11-16-000001.jsonl.gz");
    let mut text = String::new();
    let file = File::open(path).unwrap();
    let mut gzip = flate2::read::MultiGzDecoder::new(file);
    io::Read::read_to_string(&mut gzip, &mut text).unwrap();
    let first = text.lines().next().unwrap();
    assert_eq!(
        first,
        "{\"format\":1,\"id\":\"a\",\"state\":\"completed\",\
         \"modified\":\"2023-11-14T22:13:20.123Z\",\"record\":{\"x\":1}}"
    );
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn what_was_put_back_is_packed_no_more_until_it_is_packed_again() {
    let (_dir, archive) = archive();
    pack(&archive, &[packed("a", b"1"), packed("ab", b"2")]);
    archive.let_go("a").unwrap();
    archive.let_go("nobody").unwrap();
    assert_eq!(
        (archive.state_of("a"), archive.find("a").unwrap()),
        (None, None)
    );
    assert_eq!(archive.state_of("ab"), Some(State::Completed));
    // The index is made anew from files that still have it.
    fs::remove_file(archive.index_path()).unwrap();
    archive.mend().unwrap();
    assert_eq!(archive.state_of("a"), None);
    pack(&archive, &[packed("a", b"3")]);
    assert_eq!(archive.find("a").unwrap().unwrap().record, b"3");
}

#[test]
fn row_52_a_line_that_was_cut_short_is_nobodys() {
    let (_dir, archive) = archive();
    pack(&archive, &[packed("a", b"1"), packed("ab", b"2")]);
    fs::write(archive.restored_path(), "1 a").unwrap();
    assert_eq!(archive.state_of("a"), Some(State::Completed));
    archive.let_go("ab").unwrap();
    assert_eq!(archive.state_of("ab"), None);
    assert_eq!(archive.state_of("a"), Some(State::Completed));
}
