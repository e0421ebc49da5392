//! Batches, trouble and files in the way.

use super::*;
use crate::clock::Wall;
use crate::protocol::lifecycle::State;
use crate::spool::look::Identity;
use std::fs;
use std::sync::mpsc;

fn committer(layout: &Layout) -> (Committer, mpsc::Receiver<Option<String>>) {
    let (audit, _) = AuditLog::open(&layout.audit(), Durability::Full, Wall(0)).unwrap();
    let (tell, told) = mpsc::channel();
    let on_trouble = move |trouble| {
        let _ = tell.send(trouble);
    };
    let (committer, _) =
        Committer::start(layout.clone(), audit, Durability::Full, on_trouble, None).unwrap();
    (committer, told)
}

fn root() -> (tempfile::TempDir, Layout) {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    layout.ensure().unwrap();
    (dir, layout)
}

fn finish(committer: &Committer, change: Change) -> Finished {
    let (tell, told) = mpsc::channel();
    let events = vec![Event::new(Wall(0), "test").about("x")];
    committer.submit(change, events, move |finished| tell.send(finished).unwrap());
    told.recv_timeout(Duration::from_secs(60)).unwrap()
}

fn advance(to: State) -> Change {
    Change::Advance {
        id: "x".into(),
        from: State::InProgress,
        to,
        bytes: b"new".to_vec(),
    }
}

#[test]
fn a_record_gets_its_content_and_travels() {
    let (_dir, layout) = root();
    fs::write(layout.record(State::InProgress, "x"), "old").unwrap();
    let (committer, _) = committer(&layout);
    assert_eq!(
        finish(&committer, advance(State::Completed)),
        Finished::Done
    );
    assert_eq!(layout.states_of("x"), [State::Completed]);
    assert_eq!(
        fs::read(layout.record(State::Completed, "x")).unwrap(),
        b"new"
    );
    let spares: Vec<_> = fs::read_dir(layout.spares()).unwrap().flatten().collect();
    assert_eq!(spares.len(), 1, "to be used again");
    assert_eq!(fs::read(spares[0].path()).unwrap(), b"");
    assert_eq!(
        crate::store::audit::verify(&layout.audit()).unwrap().lines,
        1
    );
}

#[test]
fn a_file_in_the_way_is_set_aside_and_kept() {
    let (_dir, layout) = root();
    fs::write(layout.record(State::InProgress, "x"), "old").unwrap();
    fs::write(layout.record(State::Completed, "x"), "somebody's").unwrap();
    let (committer, _) = committer(&layout);
    finish(&committer, advance(State::Completed));
    assert_eq!(
        fs::read(layout.record(State::Completed, "x")).unwrap(),
        b"new"
    );
    let aside: Vec<_> = fs::read_dir(layout.aside()).unwrap().collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(
        fs::read(aside[0].as_ref().unwrap().path()).unwrap(),
        b"somebody's"
    );
}

#[test]
fn what_cannot_be_written_is_kept_and_written_when_it_can() {
    let (_dir, layout) = root();
    fs::write(layout.record(State::InProgress, "x"), "old").unwrap();
    let (committer, trouble) = committer(&layout);
    // A file where the folder for temporary files should be: nothing can be written.
    fs::remove_dir(layout.spares()).unwrap();
    fs::write(layout.spares(), "in the way").unwrap();
    let (tell, told) = mpsc::channel();
    committer.submit(advance(State::Completed), Vec::new(), move |done| {
        tell.send(done).unwrap();
    });
    assert!(
        trouble
            .recv_timeout(Duration::from_secs(60))
            .unwrap()
            .is_some()
    );
    assert!(
        told.try_recv().is_err(),
        "nobody is told of an outcome that is not written"
    );
    assert_eq!(layout.states_of("x"), [State::InProgress]);
    fs::remove_file(layout.spares()).unwrap();
    fs::create_dir(layout.spares()).unwrap();
    assert_eq!(
        told.recv_timeout(Duration::from_secs(60)).unwrap(),
        Finished::Done
    );
    assert_eq!(layout.states_of("x"), [State::Completed]);
    while trouble
        .recv_timeout(Duration::from_secs(60))
        .unwrap()
        .is_some()
    {}
}

#[test]
fn a_state_folder_that_was_deleted_is_made_again() {
    let (_dir, layout) = root();
    fs::write(layout.record(State::InProgress, "x"), "old").unwrap();
    fs::remove_dir(layout.state(State::Completed)).unwrap();
    let (committer, _trouble) = committer(&layout);
    assert_eq!(
        finish(&committer, advance(State::Completed)),
        Finished::Done
    );
    assert_eq!(layout.states_of("x"), [State::Completed]);
}

#[test]
fn rejected_bytes_are_moved_untouched_with_a_notice() {
    let (_dir, layout) = root();
    let (committer, _) = committer(&layout);
    for expected in ["x", "x~2", "x~3"] {
        let source = layout.pending().join("x.json");
        fs::write(&source, "{broken").unwrap();
        let rejection = crate::spool::reject::Rejection {
            identity: Identity::at(&source).unwrap(),
            source,
            wanted: "x".into(),
            notice: crate::protocol::record::Record::admit(serde_json::Map::new(), "x", None),
            id: String::new(),
        };
        assert_eq!(
            finish(&committer, Change::Reject(Box::new(rejection))),
            Finished::Rejected(expected.to_owned())
        );
        let kept = layout
            .state(State::Failed)
            .join(format!("{expected}.rejected"));
        assert_eq!(fs::read(kept).unwrap(), b"{broken");
        assert!(layout.record(State::Failed, expected).exists());
    }
    assert_eq!(fs::read_dir(layout.rejecting()).unwrap().count(), 0);
}

#[test]
fn bytes_that_changed_since_they_were_judged_are_not_rejected() {
    let (_dir, layout) = root();
    let (committer, _) = committer(&layout);
    let source = layout.pending().join("x.json");
    fs::write(&source, "{broken").unwrap();
    let identity = Identity::at(&source).unwrap();
    fs::write(&source, "{\"whole\":1}").unwrap();
    let rejection = crate::spool::reject::Rejection {
        identity,
        source: source.clone(),
        wanted: "x".into(),
        notice: crate::protocol::record::Record::admit(serde_json::Map::new(), "x", None),
        id: String::new(),
    };
    assert_eq!(
        finish(&committer, Change::Reject(Box::new(rejection))),
        Finished::Skipped
    );
    assert_eq!(fs::read(&source).unwrap(), b"{\"whole\":1}");
    assert!(!layout.is_taken("x"));
}

#[test]
fn a_claim_whose_outcome_is_in_the_same_batch_goes_with_it() {
    let job = |change| Job {
        change,
        events: Vec::new(),
        done: None,
        step: Step::New,
        temp: None,
    };
    let settle = |to| Change::Settle {
        id: "x".into(),
        at: State::InProgress,
        to,
        leftover: PathBuf::new(),
        keep: None,
        awaited: false,
    };
    let jobs = [
        job(settle(State::InProgress)),
        job(Change::Note),
        job(advance(State::Completed)),
        job(settle(State::InProgress)),
    ];
    assert_eq!(superseded(&jobs), [Some(2), None, None, None]);
    let mut done = [
        job(settle(State::InProgress)),
        job(advance(State::Completed)),
    ];
    done[1].step = Step::Moved;
    assert_eq!(superseded(&done), [None, None]);
}
