//! Files that are no requests: moved to `failed/` byte for byte, with a notice that says why.
//!
//! Notice and bytes go through `.handoffd/rejecting/`, in that order, so that a restart finds
//! what was under way, and why, without reading all of `failed/`. The notice carries the inode and
//! size of the bytes, so that a restart knows its own notice from another file of that name. The
//! device is no part of it: it may have another number once it is mounted again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::durable;
use crate::protocol::id::HandoffId;
use crate::protocol::lifecycle::State;
use crate::protocol::name::Ext;
use crate::protocol::record::Record;
use crate::spool::layout::Layout;
use crate::spool::look::{Identity, open_quietly};

#[derive(Debug)]
pub struct Rejection {
    /// Where it lies: in `pending/`, or in `rejecting/` after a restart.
    pub source: PathBuf,
    pub identity: Identity,
    /// The id it would have had. The one it gets is numbered if that is taken.
    pub wanted: String,
    /// The failed record that tells why; its id and the place of the bytes are filled in here.
    pub notice: Record,
    /// Chosen when the bytes are set apart.
    pub id: String,
}

fn mark(identity: Identity) -> String {
    format!("{}:{}", identity.inode, identity.size)
}

/// Whether a notice has this mark; one that was written before the device was left out has it, too.
fn has_mark(notice: &Record, identity: Identity) -> bool {
    let mark = mark(identity);
    let has = notice.meta.rejected.as_deref();
    has.and_then(|has| has.strip_suffix(&mark))
        .is_some_and(|before| before.is_empty() || before.ends_with(':'))
}

/// The notice at `path`, if there is one and it is about these very bytes.
fn read_notice(path: &Path, identity: Identity) -> io::Result<Option<Record>> {
    // Somebody may have put a pipe there, which would never be read to its end.
    let mut file = match open_quietly(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let notice = Record::read(&bytes).ok();
    Ok(notice.filter(|notice| has_mark(notice, identity)))
}

impl Rejection {
    pub fn from_folder(&self) -> PathBuf {
        self.source.parent().unwrap_or(Path::new(".")).to_owned()
    }

    fn apart(&self, layout: &Layout) -> PathBuf {
        layout.rejecting().join(format!("{}.rejected", self.id))
    }

    fn notice_path(&self, layout: &Layout) -> PathBuf {
        layout.record(State::Failed, &self.id)
    }

    /// Where the notice stands until it is synced.
    fn draft(&self, layout: &Layout) -> PathBuf {
        layout.rejecting().join(format!("{}.json", self.id))
    }

    /// The reason that an earlier start had written down for bytes in `rejecting/`.
    pub fn drafted(apart: &Path, identity: Identity) -> io::Result<Option<Record>> {
        read_notice(&apart.with_extension("json"), identity)
    }

    /// Settles the id, writes the notice, and moves the bytes out of sight of intake. The
    /// notice's file is to be synced; `None` if the bytes are not there any more, or are not
    /// those that were judged.
    pub fn set_apart(&mut self, layout: &Layout) -> io::Result<Option<File>> {
        if self.id.is_empty() {
            self.id = self.choose_id(layout);
            let apart = self.apart(layout);
            // Seen twice, and set apart by whoever was first.
            if apart != self.source && Identity::at(&apart).is_ok_and(|it| it == self.identity) {
                return Ok(None);
            }
        }
        // By way of another name: the draft of an earlier start has the reason, and must stand
        // until this one does.
        let temp = layout.tmp().join(format!("notice-{}", self.id));
        let draft = durable::create_anew(&temp, &self.notice(layout))?;
        durable::replace(&temp, &self.draft(layout))?;
        if self.move_apart(layout)? {
            return Ok(Some(draft));
        }
        fs::remove_file(self.draft(layout))?;
        Ok(None)
    }

    fn move_apart(&self, layout: &Layout) -> io::Result<bool> {
        let apart = self.apart(layout);
        if fs::symlink_metadata(&apart).is_ok() {
            return Ok(Identity::at(&apart)? == self.identity);
        }
        match durable::move_no_replace(&self.source, &apart) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.source_is_gone() => {
                return Ok(false);
            }
            moved => moved?,
        }
        if Identity::at(&apart)? == self.identity {
            return Ok(true);
        }
        durable::move_no_replace(&apart, &self.source)?;
        Ok(false)
    }

    fn source_is_gone(&self) -> bool {
        fs::symlink_metadata(&self.source).is_err()
    }

    /// The wanted id, or the first numbered one that is free. One whose notice is about these
    /// very bytes is ours.
    fn choose_id(&self, layout: &Layout) -> String {
        let free = |id: &str| {
            self.is_own_place(layout, id) || !layout.is_taken(id) || self.is_ours(layout, id)
        };
        if free(&self.wanted) {
            return self.wanted.clone();
        }
        first_free(&self.wanted, free)
    }

    /// A damaged record keeps its id: it is taken by nothing but itself.
    fn is_own_place(&self, layout: &Layout, id: &str) -> bool {
        let states = layout.states_of(id);
        !states.is_empty()
            && states
                .iter()
                .all(|state| layout.record(*state, id) == self.source)
    }

    fn is_ours(&self, layout: &Layout, id: &str) -> bool {
        matches!(Self::noticed(layout, id, self.identity), Ok(Some(_)))
    }

    /// The notice in `failed/` under this id, if it is about these very bytes.
    pub fn noticed(layout: &Layout, id: &str, identity: Identity) -> io::Result<Option<Record>> {
        read_notice(&layout.record(State::Failed, id), identity)
    }

    fn notice(&self, layout: &Layout) -> Vec<u8> {
        let mut record = self.notice.clone();
        record.meta.rejected = Some(mark(self.identity));
        record.set("handoff_id", self.id.clone());
        let kept = layout.relative(&self.kept(layout));
        let told = record.doc.contains_key("rejected_file");
        if !told {
            let dropped_as = record.doc.get("dropped_as").and_then(Value::as_str);
            let again = format!("Then {}", drop_again(&self.id, dropped_as));
            if let Some(Value::Array(actions)) = record.doc.get_mut("recovery_actions") {
                actions.push(again.into());
            }
        }
        record.set("rejected_file", kept);
        record.to_bytes()
    }

    /// Where the bytes end up.
    fn kept(&self, layout: &Layout) -> PathBuf {
        layout
            .state(State::Failed)
            .join(format!("{}.rejected", self.id))
    }

    /// Puts the notice, which is synced, and the bytes into `failed/`.
    pub fn place(&self, layout: &Layout) -> io::Result<()> {
        let draft = self.draft(layout);
        match durable::move_no_replace(&draft, &self.notice_path(layout)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&draft)?;
            }
            moved => moved?,
        }
        let (apart, kept) = (self.apart(layout), self.kept(layout));
        match durable::move_no_replace(&apart, &kept) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // After a power cut the same file may stand under both names. Anything else is
                // somebody's, and is not deleted.
                if Identity::at(&kept)? != self.identity {
                    let inode = Identity::at(&kept)?.inode;
                    let name = format!("{}.rejected.{inode}", self.id);
                    durable::move_no_replace(&kept, &layout.aside().join(name))?;
                    return durable::move_no_replace(&apart, &kept);
                }
                fs::remove_file(&apart)
            }
            moved => moved,
        }
    }
}

/// How refused bytes that were mended come back to where they are read: under the extension that
/// they were dropped with, because it says what they are tried as, and under a name that is taken.
pub fn drop_again(id: &str, dropped_as: Option<&str>) -> String {
    let kept = format!("handoffs/failed/{id}.rejected");
    let ext = match dropped_as {
        // What stood in a folder of records was a record.
        None => Some(Ext::Json),
        Some(name) => name
            .rsplit_once('.')
            .and_then(|(_, ext)| Ext::parse(&ext.to_ascii_lowercase())),
    };
    let Some(ext) = ext else {
        return format!(
            "drop it under a name with the right extension (.json, .yaml, .yml or .md), like: mv \
             {kept} handoffs/pending/<id>.json"
        );
    };
    if HandoffId::parse(id).is_err() {
        return format!("drop it under a free id: mv {kept} handoffs/pending/<id>.{ext}");
    }
    // The id is taken by the notice until the notice is gone.
    format!(
        "drop it under another name, or: rm handoffs/failed/{id}.json && mv {kept} \
         handoffs/pending/{id}.{ext}"
    )
}

/// `<id>~<n>`, cut so that it stays a file name.
pub fn numbered(id: &str, n: u64) -> String {
    match HandoffId::parse_made(id) {
        Ok(id) => id.numbered(n).to_string(),
        Err(_) => format!("{id}~{n}"),
    }
}

/// The next numbered form of a taken id that is free.
pub fn free_id(layout: &Layout, id: &str) -> String {
    first_free(id, |candidate| !layout.is_taken(candidate))
}

/// Numbers are given out in order, so the border between taken and free is found by halving:
/// the ten-thousandth duplicate must not cost ten thousand looks.
fn first_free(id: &str, free: impl Fn(&str) -> bool) -> String {
    let mut taken = 1;
    let mut open = 2;
    while !free(&numbered(id, open)) && open < u64::MAX / 2 {
        taken = open;
        open *= 2;
    }
    while open - taken > 1 {
        let middle = taken.midpoint(open);
        if free(&numbered(id, middle)) {
            open = middle;
        } else {
            taken = middle;
        }
    }
    numbered(id, open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_number_follows_the_last_taken_one() {
        for taken in [1u64, 2, 3, 7, 8, 9, 1000] {
            let is_free = |id: &str| {
                let n: u64 = id.strip_prefix("x~").unwrap().parse().unwrap();
                n > taken
            };
            assert_eq!(first_free("x", is_free), format!("x~{}", taken + 1));
        }
    }

    #[test]
    fn mended_bytes_are_sent_back_under_a_name_that_is_read() {
        for (id, dropped_as, part) in [
            ("x", Some("x.json"), "pending/x.json"),
            ("x", Some("x.md"), "pending/x.md"),
            ("a.b", Some("a.b.yaml"), "pending/a.b.yaml"),
            ("x", Some("x.yml"), "pending/x.yml"),
            ("x", None, "pending/x.json"),
            ("x~2", Some("x.md"), "pending/<id>.md"),
            ("rejected-1", Some("a b.yaml"), "pending/rejected-1.yaml"),
            ("rejected-1", Some("x.Md"), "pending/rejected-1.md"),
            ("rejected-1", Some("x.txt"), "the right extension"),
            ("rejected-1", Some("x"), "the right extension"),
        ] {
            let told = drop_again(id, dropped_as);
            assert!(told.contains(part), "{id}, {dropped_as:?}: {told}");
            assert_eq!(
                told.contains(&format!("rm handoffs/failed/{id}.json")),
                part.contains(&format!("pending/{id}.")),
                "{told}"
            );
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "as a power cut may leave it")]
    fn bytes_that_stand_at_their_place_already_are_placed() {
        for same in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path());
            layout.ensure().unwrap();
            let source = layout.pending().join("x.json");
            fs::write(&source, "{broken").unwrap();
            let mut rejection = Rejection {
                identity: Identity::at(&source).unwrap(),
                source,
                wanted: "x".to_owned(),
                notice: Record::admit(serde_json::Map::new(), "x", None),
                id: String::new(),
            };
            assert!(rejection.set_apart(&layout).unwrap().is_some());
            let kept = rejection.kept(&layout);
            if same {
                fs::hard_link(rejection.apart(&layout), &kept).unwrap();
            } else {
                fs::write(&kept, "somebody's").unwrap();
            }
            rejection.place(&layout).unwrap();
            assert_eq!(fs::read(kept).unwrap(), b"{broken");
            assert_eq!(fs::read_dir(layout.rejecting()).unwrap().count(), 0);
            let aside = fs::read_dir(layout.aside()).unwrap().count();
            assert_eq!(aside, usize::from(!same));
        }
    }

    #[test]
    fn a_notice_is_known_again_after_another_mount() {
        let identity = Identity {
            device: 7,
            inode: 42,
            size: 9,
            modified_ns: 0,
        };
        let of = |rejected: &str| {
            let mut notice = Record::admit(serde_json::Map::new(), "x", None);
            notice.meta.rejected = Some(rejected.to_owned());
            has_mark(&notice, identity)
        };
        assert!(of(&mark(identity)) && of("7:42:9") && of("8:42:9"));
        assert!(!of("142:9") && !of("42:8") && !of("") && !of("7:1:42:99"));
    }

    #[test]
    fn what_was_judged_twice_is_set_apart_once() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.ensure().unwrap();
        let source = layout.pending().join("x.json");
        fs::write(&source, "{broken").unwrap();
        let identity = Identity::at(&source).unwrap();
        let mut judged = [(); 2].map(|()| Rejection {
            source: source.clone(),
            identity,
            wanted: "x".to_owned(),
            notice: Record::admit(serde_json::Map::new(), "x", None),
            id: String::new(),
        });
        let [first, second] = &mut judged;
        assert!(first.set_apart(&layout).unwrap().is_some());
        assert!(second.set_apart(&layout).unwrap().is_none());
        assert!(
            first.set_apart(&layout).unwrap().is_some(),
            "a second try of the same"
        );
        first.place(&layout).unwrap();
        assert_eq!(fs::read(first.kept(&layout)).unwrap(), b"{broken");
        assert_eq!(fs::read_dir(layout.rejecting()).unwrap().count(), 0);
    }
}
