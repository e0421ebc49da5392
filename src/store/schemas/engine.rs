//! The one file that names the crate `jsonschema`.
//!
//! Its releases break often, so the rest of the room sees three functions and the names that are
//! passed on below. What the crate leaves open is closed here: no file and no network but what
//! the loader hands out, a limit for expressions that backtrack, room on the stack for schemas
//! that refer in long chains, and an end to alternatives within alternatives, whose reasons
//! double with every level of the document.

use std::any::Any;
use std::cell::Cell;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::{Keyword, PatternOptions, Retrieve, Uri, Validator, uri};
use serde_json::Value;

pub(super) use jsonschema::ReferencingError as Unresolved;
pub(super) use jsonschema::ValidationError as Fault;
pub(super) use jsonschema::error::{TypeKind as Types, ValidationErrorKind as Kind};

use super::load::{Document, Failure, Loader};
use super::name;
use super::say;
use super::walk::METER;
use crate::protocol::field::FieldError;

/// The address of a rule.
pub(super) type Place = Uri<String>;

/// Steps back that one expression may take on one text: a few milliseconds.
const BACKTRACKS: usize = 100_000;

/// Bytes of stack that one step of a check is given: more than it was seen to take without
/// optimizations, with chains of 50,000 references.
const STEP_BYTES: usize = 2048;

/// Stack that any thread of ours has left, and the most that a thread is made with.
const STACK_AT_HAND: usize = 768 * 1024;
const STACK_MOST: usize = 1024 * 1024 * 1024;

/// A document of more values than this hears only of its first fault.
const LARGE: u64 = 100_000;

/// Steps in place that a check may take, and values that may be gone through for the reasons of
/// alternatives: this many, and a multiple of the document.
const STEPS: u64 = 500_000;
const ALTERNATIVES: u64 = 20_000;
const FACTOR: u64 = 40;

/// A schema that is ready for use.
pub(super) struct Compiled {
    validator: Validator,
    documents: Vec<Document>,
    links: usize,
}

/// Compiles the file `name` and what it refers to. The loader keeps what was read.
pub(super) fn compile(loader: &Arc<Mutex<Loader>>, name: &str) -> Result<Compiled, Failure> {
    let lock = || loader.lock().unwrap_or_else(PoisonError::into_inner);
    let root = lock().first(name)?;
    let options = jsonschema::options()
        .with_base_uri(name::address(name))
        .with_retriever(Shelf(Arc::clone(loader)))
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS))
        .with_keyword(METER, |_, value, _| {
            Ok(Box::new(Meter {
                alternatives: value == &Value::Bool(true),
            }))
        });
    let built = catch_unwind(AssertUnwindSafe(|| options.build(&root)));
    let loader = lock();
    if let Some(failure) = &loader.failure {
        return Err(failure.clone());
    }
    match built {
        Ok(Ok(validator)) => Ok(Compiled {
            validator,
            links: loader.links,
            documents: loader.documents.clone(),
        }),
        Ok(Err(fault)) => Err(Failure::settled(say::unusable(
            name,
            &fault,
            &loader.documents,
        ))),
        Err(_) => Err(Failure::settled(format!(
            "the schema {} crashes the checker",
            name::quoted(name)
        ))),
    }
}

impl Compiled {
    /// Everything that is wrong with a document, in the order of the document.
    pub fn check(&self, document: &Value) -> Result<(), Vec<FieldError>> {
        let most = STACK_AT_HAND / STEP_BYTES;
        // The depth is looked at only where it could matter: documents are 120 levels deep at most.
        if self.links.saturating_mul(128) <= most {
            return self.check_here(document);
        }
        let steps = self.links.saturating_mul(depth(document));
        if steps <= most {
            return self.check_here(document);
        }
        let stack = steps.saturating_mul(STEP_BYTES) + STACK_AT_HAND;
        if stack > STACK_MOST {
            return Err(vec![FieldError::new(
                "",
                "is nested too deeply to check against a schema with so many references",
            )]);
        }
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("schema".to_owned())
                .stack_size(stack)
                .spawn_scoped(scope, || self.check_here(document))
                .map_err(|error| vec![FieldError::new("", format!("can't be checked: {error}"))])?
                .join()
                .unwrap_or_else(|_| Err(vec![gave_up()]))
        })
    }

    fn check_here(&self, document: &Value) -> Result<(), Vec<FieldError>> {
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let weight = weigh(document);
            LEFT.set(STEPS + FACTOR * weight);
            if self.validator.is_valid(document) {
                return Ok(());
            }
            LEFT.set(ALTERNATIVES + FACTOR * weight);
            let faults: Vec<Fault<'_>> = if weight > LARGE {
                self.validator
                    .validate(document)
                    .err()
                    .into_iter()
                    .collect()
            } else {
                self.validator.iter_errors(document).collect()
            };
            Err(say::all(document, &faults, &self.documents))
        }));
        match checked {
            Ok(Err(errors)) if errors.is_empty() => Err(vec![gave_up()]),
            Ok(checked) => checked,
            Err(why) => Err(vec![stopped(&*why)]),
        }
    }
}

fn stopped(why: &(dyn Any + Send)) -> FieldError {
    if why.is::<Spent>() {
        return FieldError::new(
            "",
            "can't be checked: the schema nests too many rules for it",
        );
    }
    gave_up()
}

fn gave_up() -> FieldError {
    FieldError::new("", "can't be checked against the schema")
}

/// Checks a schema against the schema of schemas: the place and the reason of a fault.
pub(super) fn check_schema(schema: &Value) -> Result<(), (String, String)> {
    match catch_unwind(AssertUnwindSafe(|| {
        jsonschema::meta::validate(schema).map_err(|fault| match fault.kind() {
            Kind::Referencing(_) => {
                let draft = schema.get("$schema").and_then(Value::as_str);
                let draft = name::quoted(draft.unwrap_or_default());
                ("#/$schema".to_owned(), format!("unknown draft {draft}"))
            }
            _ => (
                format!("#{}", fault.instance_path().as_str()),
                say::sentence(&fault),
            ),
        })
    })) {
        Ok(checked) => checked,
        Err(_) => Err(("#".to_owned(), "the checker fails on it".to_owned())),
    }
}

/// A reference seen from a base, without its fragment.
pub(super) fn resolve(base: &str, reference: &str) -> Option<String> {
    let base = uri::from_str(base).ok()?;
    let resolved = uri::resolve_against(&base.borrow(), reference).ok()?;
    Some(resolved.as_str().split('#').next()?.to_owned())
}

/// The loader, as the crate wants it.
struct Shelf(Arc<Mutex<Loader>>);

impl Retrieve for Shelf {
    fn retrieve(&self, address: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let mut loader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match loader.fetch(address.as_str()) {
            Ok(value) => Ok(Value::clone(&value)),
            Err(failure) => Err(failure.sentence.into()),
        }
    }
}

thread_local! {
    /// What this thread's check may still spend.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Thrown to end a check that has spent what it may.
struct Spent;

/// Counts what rules for the same value cost, which may double with every level. Alternatives
/// cost the most: each is tried in full for its reasons, and the reasons hold copies of values.
struct Meter {
    alternatives: bool,
}

fn spend(cost: u64) {
    match LEFT.get().checked_sub(cost) {
        Some(left) => LEFT.set(left),
        // Not a panic: nothing is printed, and `check_here` catches it.
        None => resume_unwind(Box::new(Spent)),
    }
}

impl<'i> Keyword<'i> for Meter {
    fn validate(&self, instance: &'i Value) -> Result<(), Fault<'i>> {
        if self.alternatives {
            spend(weigh(instance));
            return Err(Fault::custom(""));
        }
        spend(1);
        Ok(())
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        spend(1);
        !self.alternatives
    }
}

/// The alternatives that the schema names: without the one that counts.
pub(super) fn named<'a>(context: &'a [Vec<Fault<'static>>]) -> &'a [Vec<Fault<'static>>] {
    let counts = |fault: &Fault<'_>| matches!(fault.kind(), Kind::Custom { keyword, .. } if keyword == METER);
    match context.split_last() {
        Some((last, rest)) if last.iter().any(counts) => rest,
        _ => context,
    }
}

/// About how many values a document holds, long texts counting for more.
fn weigh(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(weigh).sum::<u64>(),
        Value::Object(map) => 1 + map.values().map(weigh).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}

fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
