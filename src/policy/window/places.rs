//! Where a record has what the daemon itself added.

use serde_json::Value;

use crate::protocol::record::Record;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Outcomes of earlier runs of the handoff.
    Previous,
    /// Lists that the chain accumulated: in `input.data`, or beside it where the result that asked
    /// for the handoff used their names.
    Decisions,
    Artifacts,
    Questions,
    CarriedDecisions,
    CarriedArtifacts,
    CarriedQuestions,
    /// What its own earlier results and its helpers said for the chain.
    GatheredDecisions,
    GatheredArtifacts,
    GatheredQuestions,
    /// What helpers gave back.
    Returns,
    LastResult,
}

impl Place {
    /// Oldest first.
    pub const ALL: [Self; 12] = [
        Self::Previous,
        Self::Decisions,
        Self::Artifacts,
        Self::Questions,
        Self::CarriedDecisions,
        Self::CarriedArtifacts,
        Self::CarriedQuestions,
        Self::GatheredDecisions,
        Self::GatheredArtifacts,
        Self::GatheredQuestions,
        Self::Returns,
        Self::LastResult,
    ];

    pub fn age(self) -> usize {
        self as usize
    }

    /// The path in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Previous => "handoffd.previous",
            Self::Decisions => "input.data.decisions",
            Self::Artifacts => "input.data.artifacts",
            Self::Questions => "input.data.open_questions",
            Self::CarriedDecisions => "handoffd.carried.decisions",
            Self::CarriedArtifacts => "handoffd.carried.artifacts",
            Self::CarriedQuestions => "handoffd.carried.open_questions",
            Self::GatheredDecisions => "handoffd.gathered.decisions",
            Self::GatheredArtifacts => "handoffd.gathered.artifacts",
            Self::GatheredQuestions => "handoffd.gathered.open_questions",
            Self::Returns => "handoffd.returns",
            Self::LastResult => "handoffd.last_result",
        }
    }

    /// One entry of it.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Previous => "earlier outcome",
            Self::Decisions | Self::CarriedDecisions | Self::GatheredDecisions => "decision",
            Self::Artifacts | Self::CarriedArtifacts | Self::GatheredArtifacts => "artifact",
            Self::Questions | Self::CarriedQuestions | Self::GatheredQuestions => "open question",
            Self::Returns => "return",
            Self::LastResult => "result",
        }
    }

    fn key(self) -> &'static str {
        self.name().rsplit('.').next().unwrap_or_default()
    }
}

/// The entries of a place that is a list.
pub fn list(record: &Record, place: Place) -> Option<&[Value]> {
    let links = &record.meta.links;
    let value = match place {
        Place::Previous => return Some(&record.meta.previous),
        Place::Returns => return Some(&links.returns),
        Place::LastResult => return None,
        Place::Decisions | Place::Artifacts | Place::Questions => {
            record.doc.get("input")?.get("data")?.get(place.key())?
        }
        Place::CarriedDecisions | Place::CarriedArtifacts | Place::CarriedQuestions => {
            links.carried.get(place.key())?
        }
        Place::GatheredDecisions | Place::GatheredArtifacts | Place::GatheredQuestions => {
            links.gathered.get(place.key())?
        }
    };
    value.as_array().map(Vec::as_slice)
}

pub fn list_mut(record: &mut Record, place: Place) -> Option<&mut Vec<Value>> {
    let links = &mut record.meta.links;
    let value = match place {
        Place::Previous => return Some(&mut record.meta.previous),
        Place::Returns => return Some(&mut links.returns),
        Place::LastResult => return None,
        Place::Decisions | Place::Artifacts | Place::Questions => {
            let data = record.doc.get_mut("input")?.get_mut("data")?;
            data.get_mut(place.key())?
        }
        Place::CarriedDecisions | Place::CarriedArtifacts | Place::CarriedQuestions => {
            links.carried.get_mut(place.key())?
        }
        Place::GatheredDecisions | Place::GatheredArtifacts | Place::GatheredQuestions => {
            links.gathered.get_mut(place.key())?
        }
    };
    value.as_array_mut()
}

/// The entries of the last result, at the end of a list in `input.data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastEntries {
    /// A schema may be about them: none is taken.
    Stay,
    /// They may be taken as well.
    Go,
}

/// How many entries at the head of a list may be taken. In `input.data` that is none where the daemon
/// did not make the request.
pub fn taken_from(record: &Record, place: Place, last: LastEntries) -> usize {
    let entries = list(record, place).map_or(0, <[Value]>::len);
    match place {
        Place::Decisions | Place::Artifacts | Place::Questions => {
            let links = &record.meta.links;
            if links.mark.is_none() {
                return 0;
            }
            match links.written.get(place.key()) {
                None => entries,
                Some(written) => match written.as_u64().map(usize::try_from) {
                    Some(Ok(_)) if last == LastEntries::Go => entries,
                    Some(Ok(count)) => entries.saturating_sub(count),
                    _ => 0,
                },
            }
        }
        Place::Previous
        | Place::CarriedDecisions
        | Place::CarriedArtifacts
        | Place::CarriedQuestions
        | Place::GatheredDecisions
        | Place::GatheredArtifacts
        | Place::GatheredQuestions
        | Place::Returns
        | Place::LastResult => entries,
    }
}

/// Notes that entries of a list were taken, those at these places: how many are left of those that the
/// last result wrote.
pub fn note_taken(record: &mut Record, place: Place, gone: &[usize]) {
    let entries = list(record, place).map_or(0, <[Value]>::len);
    let is_in_data = matches!(
        place,
        Place::Decisions | Place::Artifacts | Place::Questions
    );
    let written = record.meta.links.written.get_mut(place.key());
    let Some(written) = written.filter(|written| is_in_data && written.is_u64()) else {
        return;
    };
    let count = written
        .as_u64()
        .and_then(|count| usize::try_from(count).ok());
    let count = count.unwrap_or(0).min(entries);
    let taken = gone.iter().filter(|at| **at >= entries - count).count();
    *written = (count - taken).into();
}
