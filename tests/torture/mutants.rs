//! The harnesses can fail: each defect that can be switched on is seen by the one that should.
//!
//! A harness runs in a process of its own, twice: as it is, when nothing may break, and with the
//! defect, when something must. Only in a build with the feature `mutants`: `just mutants`.

use std::process::{Command, Output};
use std::sync::OnceLock;

/// How long what is stuck is waited for, in seconds. The sound run has no more time than that.
const PATIENCE: &str = "20";

/// One test of this binary.
struct Harness {
    test: &'static str,
    /// How much of it is tried.
    much: (&'static str, &'static str),
    /// Whether it could be tried at all; known once it has run without a defect.
    sound: OnceLock<bool>,
}

impl Harness {
    const fn new(test: &'static str, much: (&'static str, &'static str)) -> Self {
        Self {
            test,
            much,
            sound: OnceLock::new(),
        }
    }

    fn run(&self, mutant: &str) -> (Output, String) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([self.test, "--exact", "--nocapture"])
            .env(self.much.0, self.much.1)
            .env("TORTURE_PATIENCE", PATIENCE)
            .env("HANDOFFD_MUTANT", mutant)
            .output()
            .unwrap();
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output, said)
    }

    fn is_sound(&self) -> bool {
        *self.sound.get_or_init(|| {
            let (output, said) = self.run("");
            assert!(output.status.success(), "without a defect: {said}");
            assert!(said.contains("1 passed"), "no such test: {said}");
            !said.contains("nothing was tried")
        })
    }

    /// The harness is content without the defect, and reports a breach with it.
    fn sees(&self, mutant: &str) {
        if !self.is_sound() {
            eprintln!("{mutant}: {} can't be tried on this machine", self.test);
            return;
        }
        let (output, said) = self.run(mutant);
        assert!(!output.status.success(), "{mutant} was not seen: {said}");
        let reported = ["broke\n", "waited too long", "without faults"];
        assert!(
            reported.iter().any(|word| said.contains(word)),
            "{mutant}: it failed, but not for a breach: {said}"
        );
        let breach: Vec<&str> = said
            .lines()
            .skip_while(|line| !line.contains("panicked at"))
            .skip(1)
            .take_while(|line| *line != "stack backtrace:")
            .take(2)
            .collect();
        println!("{mutant}: {}", breach.join(" "));
    }
}

static ORDER: Harness = Harness::new(
    "order::content_is_synced_before_it_is_shown_and_folders_after_that",
    ("TORTURE_ORDER", "1"),
);
static CHANGES: Harness = Harness::new(
    "kill_points::a_daemon_that_is_killed_around_a_change_of_a_state_folder_loses_and_doubles_nothing",
    ("TORTURE_CHANGES", "100"),
);
static TIMES: Harness = Harness::new(
    "waits::a_retry_keeps_its_time_whoever_is_killed",
    ("TORTURE_WAITS", "2"),
);
static WAITS: Harness = Harness::new(
    "waits::a_dependency_that_ended_unheard_ends_the_wait",
    ("TORTURE_WAITS", "2"),
);
static TREES: Harness = Harness::new(
    "attempts::nothing_of_an_attempt_outlives_it",
    ("TORTURE_ESCAPES", "1"),
);
static PIDS: Harness = Harness::new(
    "attempts::a_process_that_the_journal_names_and_that_is_not_ours_lives_on",
    ("TORTURE_PIDS", "1"),
);
static RESULTS: Harness = Harness::new(
    "attempts::a_result_that_was_cut_short_is_never_taken",
    ("TORTURE_CUT_SHORT_STRIDE", "5"),
);
static LINKS: Harness = Harness::new(
    "hostile::whatever_is_dropped_ends_as_promised_and_stops_nobody",
    ("TORTURE_HOSTILE", "1"),
);
static STORM: Harness = Harness::new(
    "storm::handoffs_survive_a_thousand_kills",
    ("TORTURE_STORM", "2"),
);

#[test]
fn a_content_that_is_not_synced_is_seen() {
    ORDER.sees("no-file-sync");
}

#[test]
fn a_folder_that_is_not_synced_is_seen() {
    ORDER.sees("no-folder-sync");
}

#[test]
fn a_move_before_the_content_is_seen() {
    CHANGES.sees("move-before-content");
}

#[test]
fn a_record_that_is_overwritten_in_place_is_seen() {
    CHANGES.sees("overwrite-in-place");
}

#[test]
fn a_claim_of_two_steps_is_seen() {
    CHANGES.sees("two-step-claim");
}

#[test]
fn a_retry_whose_time_is_not_stored_is_seen() {
    TIMES.sees("retry-time-not-stored");
}

#[test]
fn a_dependency_that_only_an_event_wakes_is_seen() {
    WAITS.sees("dependency-by-event-only");
}

#[test]
fn a_kill_of_the_group_only_is_seen() {
    TREES.sees("kill-of-the-group-only");
}

#[test]
fn a_forged_process_record_that_is_believed_is_seen() {
    PIDS.sees("forged-record-believed");
}

#[test]
fn a_result_that_is_taken_when_cut_short_is_seen() {
    RESULTS.sees("result-cut-short");
}

#[test]
fn a_line_of_the_log_without_its_hash_is_seen() {
    STORM.sees("audit-without-hash");
}

#[test]
fn a_link_that_is_followed_is_seen() {
    LINKS.sees("link-followed");
}
