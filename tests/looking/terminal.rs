//! What a person sees on a terminal: tables that fit, and a page that is watched.

use std::process::Command;

use serde_json::json;

use crate::pty::Terminal;
use crate::{Root, base, failed, filled, waiting};

fn on(root: &Root, args: &[&str], size: (u16, u16)) -> Terminal {
    let mut command: Command = root.command(args);
    Terminal::run(&mut command, size)
}

/// Handoffs with ids and words that are longer than a terminal is wide.
fn long() -> Root {
    let root = filled();
    let id = "implement-the-checkout-page-with-every-way-to-pay-that-customers-asked-for";
    let mut record = failed();
    record["handoff_id"] = id.into();
    record["error"]["message"] = "no such table, and many more words than have room "
        .repeat(4)
        .into();
    record["recovery_actions"] = json!(["Read the log"]);
    root.put("failed", id, 9, &record);
    let mut asked = waiting("a-question", "human", "the result needs review");
    asked["input"] = json!({"data": {"task": "Choose between the two ways ".repeat(5)}});
    root.put("waiting", "a-question", 10, &asked);
    root
}

#[test]
fn tables_fit_the_width_of_the_terminal() {
    let root = long();
    for args in [
        &["list"][..],
        &["list", "--waiting", "human"],
        &["list", "--waiting", "dependency"],
        &["status"],
        &["chain", "broken-build"],
    ] {
        for columns in [60, 80, 200] {
            let (code, drawn) = on(&root, args, (columns, 24)).end();
            assert_eq!(code, Some(0), "{drawn}");
            // The root's path is nobody's choice, and commands are there to be copied.
            let cut = drawn
                .lines()
                .filter(|line| !line.contains(root.dir.path().to_str().unwrap()))
                .filter(|line| !line.contains("handoffd "));
            for line in cut {
                let width = line.chars().count();
                assert!(width <= columns.into(), "{args:?} at {columns}: {line}");
            }
        }
    }
}

#[test]
fn a_list_on_a_narrow_terminal() {
    let (_, drawn) = on(&long(), &["list"], (60, 24)).end();
    insta::assert_snapshot!(drawn);
}

#[test]
fn into_a_pipe_nothing_but_words_is_cut() {
    let told = long().see(&["list"]);
    assert!(told.contains("implement-the-checkout-page-with-every-way-to-pay-that-customers"));
}

#[test]
fn what_is_watched_fits_and_q_leaves() {
    let root = long();
    let mut running = base("at-work");
    running["status"] = "in_progress".into();
    root.put("in-progress", "at-work", 11, &running);
    let mut terminal = on(&root, &["status", "--watch"], (60, 15));
    let page = terminal.until("a page", |drawn| drawn.contains("q leaves"));
    assert!(
        page.starts_with("\u{1b}[?1049h"),
        "the alternate screen: {page:?}"
    );
    assert_fits(&page, 60, 15);
    let at = |title: &str| {
        page.find(title)
            .unwrap_or_else(|| panic!("{title}: {page}"))
    };
    assert!(at("RUNNING") < at("WAITING"));
    assert!(page.contains("at-work"));
    assert!(!terminal.is_for_lines());
    terminal.press("x");
    terminal.resize(90, 40);
    let page = terminal.until("a page of the other size", |drawn| {
        let last = drawn.rsplit("\u{1b}[H").next().unwrap();
        last.matches("\r\n").count() >= 39 && last.ends_with("\u{1b}[J")
    });
    assert_fits(page.rsplit("\u{1b}[H").next().unwrap(), 90, 40);
    terminal.press("q");
    terminal.until("the end", |drawn| drawn.ends_with("\u{1b}[?1049l"));
    assert!(terminal.is_for_lines(), "the keyboard is as it was");
    assert_eq!(terminal.end().0, Some(0));
}

/// The first page of what was drawn.
fn assert_fits(drawn: &str, columns: usize, lines: usize) {
    let page = drawn
        .split("\u{1b}[H")
        .find(|page| page.contains("q leaves"));
    let page: Vec<&str> = page
        .unwrap()
        .split("\u{1b}[J")
        .next()
        .unwrap()
        .split("\r\n")
        .collect();
    assert_eq!(page.len(), lines, "{page:?}");
    for line in page {
        let width = line
            .trim_end_matches(['\r', '\n'])
            .trim_end_matches("\u{1b}[K")
            .chars()
            .count();
        assert!(width <= columns, "{line:?}");
    }
}

#[test]
fn an_interrupted_watch_puts_the_terminal_back() {
    let root = filled();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let terminal = on(&root, &["status", "--watch"], (80, 24));
        terminal.until("a page", |drawn| drawn.contains("q leaves"));
        terminal.signal(signal);
        terminal.until("the end", |drawn| drawn.ends_with("\u{1b}[?1049l"));
        assert!(terminal.is_for_lines());
        assert_eq!(terminal.end().0, Some(0));
    }
}

#[test]
fn a_stopped_watch_lends_the_terminal_back() {
    let root = filled();
    let terminal = on(&root, &["status", "--watch"], (80, 24));
    terminal.until("a page", |drawn| drawn.contains("q leaves"));
    terminal.signal(libc::SIGTSTP);
    terminal.until("the usual screen", |drawn| drawn.ends_with("\u{1b}[?1049l"));
    terminal.until_stopped();
    assert!(terminal.is_for_lines());
    terminal.signal(libc::SIGCONT);
    terminal.until("another page", |drawn| {
        drawn.matches("\u{1b}[?1049h").count() == 2 && drawn.ends_with("\u{1b}[J")
    });
    assert!(!terminal.is_for_lines());
}
