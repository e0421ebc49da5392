//! Destinations: where an attempt's artifact goes, and that nobody else's file is there.

use crate::engine::world::World;
use crate::policy::judge::Failure;
use crate::policy::next::refusal;
use crate::protocol::error::ErrorCode;
use crate::protocol::field::FieldError;
use crate::protocol::record::Record;
use crate::protocol::request::Request;
use crate::store::artifacts::{Presence, RelPath};

/// Resolves where the artifact goes, at the first claim, and makes its folder. Nothing that is
/// somebody else's may stand there, at any attempt.
pub fn prepare(world: &World, record: &mut Record, request: &Request) -> Result<(), Box<Failure>> {
    let id = request.id.as_str();
    let wrong = |why: String| {
        let field = FieldError::new("expected_output.destination", why);
        let message = format!("the artifact can't be put where it is to go: {field}");
        let action = "Choose another expected_output.destination and drop it again".to_owned();
        let mut told = refusal(ErrorCode::SchemaValidationFailed, message, vec![action]);
        told.fields = vec![field];
        Box::new(told)
    };
    let kept = record.meta.destination.clone();
    let resolved = kept.clone().map_or_else(
        || request.destination(world.now().wall),
        |path| Some(Ok(path)),
    );
    let Some(resolved) = resolved else {
        return Ok(());
    };
    let path = resolved
        .and_then(|path| RelPath::parse(&path))
        .map_err(wrong)?;
    match world.artifacts.presence(&path) {
        Presence::Missing => {}
        Presence::File { .. } if is_own(world, &path, id) => {}
        // What else an earlier attempt left there, its next one is told of and may mend.
        Presence::Folder | Presence::Other(_) if kept.is_some() => {}
        Presence::File { .. } | Presence::Folder => {
            return Err(wrong(format!("{} exists already", path.as_str())));
        }
        Presence::Other(what) => return Err(wrong(format!("{} is {what}", path.as_str()))),
    }
    if let Some(other) = world.reserve(path.as_str(), id) {
        return Err(wrong(format!(
            "{} is being written by {other}",
            path.as_str()
        )));
    }
    world
        .artifacts
        .make_folder_for(&path)
        .map_err(|error| wrong(format!("its folder can't be made: {error}")))?;
    record.meta.destination = Some(path.as_str().to_owned());
    Ok(())
}

/// Whether a file is one that an earlier attempt of this handoff left.
pub fn is_own(world: &World, path: &RelPath, id: &str) -> bool {
    let registered = world.artifacts.find(path.as_str());
    match registered {
        Ok(Some(entry)) => entry.handoff_id == id,
        _ => world.leftovers.is_of(id, path.as_str()),
    }
}
