//! Destinations: where an attempt's artifact goes, and that nobody else's file is there.

use crate::engine::world::World;
use crate::policy::judge::Failure;
use crate::policy::next::refusal;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::protocol::shape::join;
use crate::store::artifacts::{Presence, RelPath};

/// How many milliseconds further a moment is looked for that nobody else has.
const MOST_MOMENTS: i64 = 10_000;

/// Why an artifact can't go somewhere.
enum Refused {
    /// Somebody else's is there, or on its way.
    Taken(String),
    Wrong(String),
}

/// Resolves where the artifact goes, at the first claim, and makes its folder. Nothing that is
/// somebody else's may stand there, at any attempt. `holder` is where the request has its
/// `expected_output`.
pub fn prepare(
    world: &World,
    record: &mut Record,
    request: &Request,
    holder: &str,
) -> Result<(), Box<Failure>> {
    let placed = match record.meta.destination.take() {
        Some(kept) => take(world, &kept, request, true).map(|()| Some(kept)),
        None => find_place(world, request),
    };
    match placed {
        Ok(path) => {
            record.meta.destination = path;
            Ok(())
        }
        Err(Refused::Taken(why) | Refused::Wrong(why)) => Err(refused(why, holder)),
    }
}

fn refused(why: String, holder: &str) -> Box<Failure> {
    let field = FieldError::new(join(holder, "expected_output.destination"), why);
    let message = format!("can't use the artifact's destination: {field}");
    let actions = vec![
        "Choose another expected_output.destination".to_owned(),
        "Then move the file back to handoffs/pending/".to_owned(),
    ];
    let mut told = refusal(ErrorCode::SchemaValidationFailed, message, actions);
    told.fields = vec![field];
    Box::new(told)
}

/// Where a template leads now. If its moment is another's, the next one is as good.
fn find_place(world: &World, request: &Request) -> Result<Option<String>, Refused> {
    let now = world.now().wall;
    let mut last = None;
    for later in 0..MOST_MOMENTS {
        let Some(resolved) = request.destination(now.plus_ms(later)) else {
            return Ok(None);
        };
        let path = resolved.map_err(Refused::Wrong)?;
        match take(world, &path, request, false) {
            Ok(()) => return Ok(Some(path)),
            Err(Refused::Taken(_)) if last.as_ref() != Some(&path) => last = Some(path),
            Err(why) => return Err(why),
        }
    }
    Err(Refused::Taken("the time has run out".to_owned()))
}

/// Reserves a path, if nobody else's file is there, and makes its folder. It is reserved first:
/// whoever had it may be finishing right now.
fn take(world: &World, path: &str, request: &Request, again: bool) -> Result<(), Refused> {
    let id = request.id.as_str();
    let parsed = RelPath::parse(path).map_err(Refused::Wrong)?;
    if let Some(other) = world.reserve(path, id) {
        return Err(Refused::Taken(format!(
            "{path} is being written by {other}"
        )));
    }
    let standing = match world.artifacts.presence(&parsed) {
        Presence::Missing => Ok(()),
        Presence::File { .. } if is_own(world, &parsed, id) => Ok(()),
        // What else an earlier attempt left there, its next one is told of and may mend.
        Presence::Folder | Presence::Other(_) if again => Ok(()),
        Presence::File { .. } | Presence::Folder => {
            Err(Refused::Taken(format!("{path} already exists")))
        }
        Presence::Other(what) => Err(Refused::Wrong(format!("{path} is {what}"))),
    };
    let made = standing.and_then(|()| {
        let made = world.artifacts.make_folder_for(&parsed);
        made.map_err(|error| Refused::Wrong(format!("can't create its folder: {error}")))
    });
    if made.is_err() {
        world.reservations().release(id);
    }
    made
}

/// Whether a file is one that an earlier attempt of this handoff left.
pub fn is_own(world: &World, path: &RelPath, id: &str) -> bool {
    let registered = world.artifacts.find(path.as_str());
    match registered {
        Ok(Some(entry)) => entry.handoff_id == id,
        _ => world.leftovers.is_of(id, path.as_str()),
    }
}
