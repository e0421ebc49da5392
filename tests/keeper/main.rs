//! The keeper with real processes, in both of its ways to hold a tree together: cgroups (where
//! this machine lets us make some) and minders.
//!
//! Each module is one topic; what it tries in both ways is listed here.

mod bench;
mod daemons;
mod ending;
#[path = "../common/needs.rs"]
mod needs;
mod one_way;
mod starting;
mod takeover;
mod turns;

use std::io::{Read, Write};

use bench::Bench;

macro_rules! in_both_ways {
    ($($topic:ident: $($name:ident)*;)*) => {
        mod cgroup {
            $($(#[test] fn $name() { super::$topic::$name(&super::Bench::new(false)); })*)*
        }
        mod minder {
            $($(#[test] fn $name() { super::$topic::$name(&super::Bench::new(true)); })*)*
        }
    };
}

in_both_ways! {
    starting:
        exit_codes_and_signals_are_told
        what_cannot_be_started_says_why
        many_at_once
        an_attempt_starts_with_nothing_of_the_keepers
        odd_bytes_arrive_as_they_are
        processor_time_is_told;
    ending:
        one_that_ignores_sigterm_is_killed_after_its_grace
        a_second_end_shortens_the_grace_and_keeps_the_reason
        an_end_right_after_the_start_is_not_lost
        what_left_its_session_ends_too
        one_that_keeps_forking_away_ends
        leftovers_end_when_the_main_process_does
        a_deadline_holds_with_no_daemon;
    daemons:
        a_new_daemon_learns_of_a_hundred_attempts
        a_newer_daemon_replaces_an_older
        what_is_forgotten_is_gone_and_the_keeper_leaves
        many_that_connect_at_once_meet_one_keeper
        another_version_is_refused
        without_a_proof_no_order_is_taken
        a_proof_that_a_killed_daemon_left_is_nobodys
        an_attempt_can_not_give_orders
        an_adopted_attempt_can_not_give_orders;
    takeover:
        a_killed_keeper_is_followed_by_one_that_takes_over
        one_that_nobody_asked_about_is_written_down_when_it_has_run_for_a_moment
        an_end_whose_last_line_was_not_written_is_known
        an_exit_with_no_keeper_is_known_as_far_as_can_be
        a_deadline_survives_the_keeper
        a_stray_is_ended_before_anything_else
        it_does_not_mind_sigterm
        a_torn_journal_is_no_obstacle;
    turns:
        one_that_is_given_ahead_starts_when_another_ends
        no_more_are_alive_than_may_be
        one_whose_turn_does_not_come_is_given_back
        all_are_given_back_when_that_is_asked_for
        one_whose_file_is_another_by_then_is_given_back
        those_of_a_daemon_that_is_gone_never_start
        a_newer_daemon_does_not_get_what_an_older_gave_ahead;
}

/// What an attempt says that comes to its keeper: the length of the answer it got.
/// It stands here because `daemons.rs` calls it by its name alone.
#[test]
fn a_visitor() {
    let Some(path) = std::env::var_os("VISIT") else {
        return;
    };
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    let hello = br#"{"hello":{"version":1}}"#;
    let length = u32::try_from(hello.len()).unwrap();
    let mut answer = [0; 8];
    let _ = socket.write_all(&[&length.to_be_bytes()[..], hello].concat());
    eprintln!("answered {}", socket.read(&mut answer).unwrap_or(0));
}
