//! The sections with fixed keys: `daemon`, `defaults`, `intake`, `notify`, `audit`, `retention`,
//! `context`, `metrics`.

use std::time::Duration;

use super::reader::Section;
use super::types::{
    Audit, Context, Daemon, Defaults, Intake, KeptPackages, Metrics, MissingSchema, Notify, OnStop,
    Retention, Retry, RetryOverride, Watch,
};
use super::units::Shown;
use super::value::{LONGEST, Value};
use crate::durable::Durability;

/// The shortest limit that is a limit at all.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const U32: u64 = u32::MAX as u64;

pub(super) fn daemon(top: &Section<'_>, daemon: &mut Daemon) {
    top.section("daemon", |s| {
        s.set("max_concurrent", &mut daemon.max_concurrent, |v| {
            v.integer(1..=10_000)
        });
        s.set("settle", &mut daemon.settle, |v| {
            v.duration(Duration::ZERO..=HOUR)
        });
        s.set("rescan", &mut daemon.rescan, |v| {
            v.duration(Duration::from_millis(100)..=HOUR)
        });
        s.set("watch", &mut daemon.watch, |v| {
            v.one_of(&[
                ("auto", Watch::Auto),
                ("inotify", Watch::Inotify),
                ("poll", Watch::Poll),
            ])
        });
        s.set("durability", &mut daemon.durability, |v| {
            v.one_of(&[("full", Durability::Full), ("relaxed", Durability::Relaxed)])
        });
        s.set(
            "max_request_size",
            &mut daemon.max_request_size,
            Value::size,
        );
        s.set("max_output_size", &mut daemon.max_output_size, Value::size);
        s.set(
            "max_artifact_size",
            &mut daemon.max_artifact_size,
            Value::size,
        );
        s.set("shutdown_grace", &mut daemon.shutdown_grace, any_duration);
        s.set("on_stop", &mut daemon.on_stop, |v| {
            v.one_of(&[("finish", OnStop::Finish), ("detach", OnStop::Detach)])
        });
        s.set("max_interruptions", &mut daemon.max_interruptions, |v| {
            v.integer(1..=U32)
        });
        s.set("max_hops", &mut daemon.max_hops, |v| v.integer(0..=U32));
        s.set("max_chain", &mut daemon.max_chain, |v| v.integer(0..=U32));
        let network = &mut daemon.allow_network_fs;
        s.set("allow_network_fs", network, Value::boolean);
        s.set("allow_shared", &mut daemon.allow_shared, Value::boolean);
    });
}

pub(super) fn defaults(top: &Section<'_>, defaults: &mut Defaults) {
    top.section("defaults", |s| {
        timeouts(s, defaults);
        s.set("kill_grace", &mut defaults.kill_grace, any_duration);
        s.set("linger", &mut defaults.linger, any_duration);
        s.set("max_hold", &mut defaults.max_hold, limit);
        let wait = &mut defaults.dependency_wait;
        s.set("dependency_wait", wait, any_duration);
        let mut retry = RetryOverride::default();
        self::retry(s, &mut retry);
        defaults.retry = retry.over(&Retry::default());
    });
}

/// `timeout` and `max_timeout`, which must fit each other.
fn timeouts(s: &Section<'_>, defaults: &mut Defaults) {
    let (timeout, max) = (s.get("timeout"), s.get("max_timeout"));
    let given = timeout.as_ref().map(limit);
    if let Some(Some(duration)) = given {
        defaults.timeout = duration;
    }
    if let Some(duration) = max.as_ref().and_then(limit) {
        defaults.max_timeout = duration;
    }
    if defaults.timeout <= defaults.max_timeout || given == Some(None) {
        return;
    }
    let (at_least, at_most) = (Shown(defaults.timeout), Shown(defaults.max_timeout));
    // With only `max_timeout` given, it is the one that has to give way.
    if let Some(value) = timeout {
        value.refuse::<()>(&format!("use at most defaults.max_timeout, {at_most}"));
    } else if let Some(value) = max {
        let hint = format!("use at least {at_least}, or set defaults.timeout lower too");
        value.refuse::<()>(&hint);
    }
}

/// The `retry` table, of the defaults and of a specialist alike.
pub(super) fn retry(parent: &Section<'_>, retry: &mut RetryOverride) {
    parent.section("retry", |s| {
        s.set_some("max_retries", &mut retry.max_retries, |v| {
            v.integer(0..=1000)
        });
        s.set_some("delay", &mut retry.delay, any_duration);
        s.set_some("multiplier", &mut retry.multiplier, |v| {
            v.float(1.0..=1000.0)
        });
        s.set_some("max_delay", &mut retry.max_delay, any_duration);
        s.set_some("jitter", &mut retry.jitter, |v| v.float(0.0..=1.0));
    });
}

pub(super) fn intake(top: &Section<'_>, intake: &mut Intake) {
    top.section("intake", |s| {
        s.set("strict", &mut intake.strict, Value::boolean);
        s.set("missing_schema", &mut intake.missing_schema, |v| {
            v.one_of(&[("fail", MissingSchema::Fail), ("warn", MissingSchema::Warn)])
        });
    });
}

pub(super) fn notify(top: &Section<'_>, notify: &mut Notify) {
    top.section("notify", |s| {
        s.set_some("failed", &mut notify.failed, Value::command);
        s.set_some("waiting_human", &mut notify.waiting_human, Value::command);
        s.set_some("completed", &mut notify.completed, Value::command);
    });
}

pub(super) fn audit(top: &Section<'_>, audit: &mut Audit) {
    top.section("audit", |s| {
        s.set("packages", &mut audit.packages, |v| {
            let words = [("dropped", KeptPackages::Dropped)];
            v.flag_or(KeptPackages::All, KeptPackages::None, &words)
        });
        s.set_some("anchor", &mut audit.anchor, Value::anchor);
        s.set("anchor_lines", &mut audit.anchor_lines, |v| {
            v.integer(1..=U32)
        });
        s.set("anchor_interval", &mut audit.anchor_interval, |v| {
            v.duration(SECOND..=LONGEST)
        });
    });
}

pub(super) fn retention(top: &Section<'_>, retention: &mut Retention) {
    top.section("retention", |s| {
        s.set_some("completed", &mut retention.completed, any_duration);
        s.set_some("failed", &mut retention.failed, any_duration);
        s.set_some("logs", &mut retention.logs, any_duration);
        s.set_some("worktrees", &mut retention.worktrees, any_duration);
        s.set_some("sessions", &mut retention.sessions, any_duration);
    });
}

pub(super) fn context(top: &Section<'_>, context: &mut Context) {
    top.section("context", |s| {
        s.set("window_tokens", &mut context.window_tokens, |v| {
            v.integer(1..=U32)
        });
        s.set("compact_at", &mut context.compact_at, |v| {
            v.float(0.001..=1.0)
        });
    });
}

pub(super) fn metrics(top: &Section<'_>, metrics: &mut Metrics) {
    top.section("metrics", |s| {
        s.set_some("listen", &mut metrics.listen, Value::loopback);
    });
}

/// A wait or a grace, which may be nothing at all.
pub(super) fn any_duration(value: &Value<'_>) -> Option<Duration> {
    value.duration(Duration::ZERO..=LONGEST)
}

/// A limit, where zero would mean that nothing ever passes.
pub(super) fn limit(value: &Value<'_>) -> Option<Duration> {
    value.duration(SHORTEST..=LONGEST)
}
