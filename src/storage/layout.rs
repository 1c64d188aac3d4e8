//! The only speller of file names in a data directory.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::contract::ObjectKind;
use crate::model::{RunId, SessionId};

/// Where everything lies in a data directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

/// What the files that are being written are called until they are whole.
pub(super) const TEMP_PREFIX: &str = "_tmp-";

/// What lies in the data directory beside the documents.
const WITHHELD_LIST: &str = "withheld";
const OUR_FILES: [&str; 4] = ["_lastword.json", "_sessions.index", "_run_order", "_lock"];
const OUR_DIRECTORIES: [&str; 8] =
    ["_run_journal", "_commit_log", "_tombstones", "_trash", "_kept", "_groups", "_attachments", "_branches"];

/// How the first `_` of a session id is spelt in names. What begins with `_` itself is ours.
const LEADING_UNDERSCORE: &str = "%5F";

/// The same for a repair: what such a file holds is still elsewhere, whatever became of the repair.
pub(super) const REPAIR_TEMP_PREFIX: &str = "_tmp-repair-";

impl Layout {
    /// The layout of this data directory.
    pub fn new(root: &Path) -> Self {
        Layout { root: root.to_owned() }
    }

    /// The data directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How a session id is spelt in the names of files and directories.
    fn name_of(session: &SessionId) -> Cow<'_, str> {
        match session.as_str().strip_prefix('_') {
            Some(rest) => Cow::Owned(format!("{LEADING_UNDERSCORE}{rest}")),
            None => Cow::Borrowed(session.as_str()),
        }
    }

    /// The session that has its parts in directories of this name.
    pub fn session_of_directory(name: &str) -> Option<SessionId> {
        match name.strip_prefix(LEADING_UNDERSCORE) {
            Some(rest) => SessionId::parse(&format!("_{rest}")).ok(),
            None => SessionId::parse(name).ok().filter(|_| !name.starts_with('_')),
        }
    }

    /// A session's sidecar.
    pub fn sidecar(&self, session: &SessionId) -> PathBuf {
        self.root.join(format!("{}.json", Self::name_of(session)))
    }

    /// The backup that the reference program may have left beside a sidecar.
    pub fn backup(&self, session: &SessionId) -> PathBuf {
        self.root.join(format!("{}.json.bak", Self::name_of(session)))
    }

    /// The transcript that an agent keeps of a session in a folder of its own.
    pub fn core_transcript(folder: &Path, session: &SessionId) -> PathBuf {
        folder.join(format!("session_{}.json", Self::name_of(session)))
    }

    /// The session whose sidecar has this file name.
    pub fn session_of(name: &str) -> Option<SessionId> {
        Layout::session_of_directory(name.strip_suffix(".json")?)
    }

    /// The session whose backup has this file name.
    pub fn session_of_backup(name: &str) -> Option<SessionId> {
        Layout::session_of(name.strip_suffix(".bak")?)
    }

    /// Whether a file of this name was still being written, by us or by another program, when somebody died.
    pub fn is_temp(name: &str) -> bool {
        let is_ours = name.starts_with(TEMP_PREFIX) && !name.contains('.');
        let is_named_so = name.ends_with(".tmp") || name.contains(".tmp.") || name.contains(".tmp-");
        is_ours || is_named_so && ![".json", ".jsonl", ".run", ".lease"].iter().any(|end| name.ends_with(end))
    }

    /// Whether a file of this name was being written by a repair.
    pub fn is_repair_temp(name: &str) -> bool {
        let rest = name.strip_prefix(REPAIR_TEMP_PREFIX).unwrap_or_default();
        rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Whether a path, from the data directory on, names a file of ours: a document, a journal, or what we keep beside them.
    /// Backups, lists and configurations of others are not, nor is any other file that lies there.
    pub fn is_our_file(relative: &Path) -> bool {
        let is_our_temp = |name: &str| name.starts_with(TEMP_PREFIX) && Layout::is_temp(name);
        let is_key = |kind, name: &str| Layout::key_of_object(kind, name).is_some();
        match *names_in(relative) {
            [name] => OUR_FILES.contains(&name) || Layout::session_of(name).is_some() || is_our_temp(name),
            ["_run_journal", _, name] => {
                Layout::run_of(name).is_some()
                    || Layout::run_of_record(name).is_some()
                    || Layout::run_of_lease_note(name).is_some()
                    || is_our_temp(name)
            }
            ["_commit_log", name] => Layout::segment_index_of(name).is_some() || name == WITHHELD_LIST,
            ["_tombstones", name] => Layout::session_of(name).is_some(),
            ["_attachments", _, name] => {
                is_key(ObjectKind::Attachment, name) || is_key(ObjectKind::AttachmentInfo, name) || is_our_temp(name)
            }
            ["_branches", _, name] => is_key(ObjectKind::Branch, name) || is_our_temp(name),
            ["_groups" | "_kept" | "_trash", ..] => true,
            _ => false,
        }
    }

    /// The same for a directory of ours.
    pub fn is_our_directory(relative: &Path) -> bool {
        match *names_in(relative) {
            ["."] => true,
            [name] => OUR_DIRECTORIES.contains(&name),
            ["_run_journal" | "_attachments" | "_branches", session] => Layout::session_of_directory(session).is_some(),
            ["_groups" | "_kept" | "_trash", ..] => true,
            _ => false,
        }
    }

    /// Whether a kept file of this name is a version of its session.
    pub fn is_kept_version(name: &str) -> bool {
        name.ends_with("-session.json") || name.starts_with("session.json-")
    }

    /// Whether a kept file of this name is a journal of this run as it was before a repair.
    pub fn is_kept_journal(name: &str, run: &RunId) -> bool {
        name.strip_prefix(run.as_str()).is_some_and(|rest| rest.starts_with(".jsonl-"))
    }

    /// Where files go that somebody did not finish writing.
    pub fn kept_temps(&self) -> PathBuf {
        self.kept().join("_temp")
    }

    /// A path as it is told: from the data directory on.
    pub fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }

    /// The folder of all journals.
    pub fn journals(&self) -> PathBuf {
        self.root.join("_run_journal")
    }

    /// The folder of a session's journals.
    pub fn journals_of(&self, session: &SessionId) -> PathBuf {
        self.journals().join(&*Self::name_of(session))
    }

    /// A run's journal.
    pub fn journal(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.journals_of(session).join(format!("{run}.jsonl"))
    }

    /// What we note of a run beside its journal.
    pub fn run_record(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.journals_of(session).join(format!("_{run}.run"))
    }

    /// The run whose journal has this file name.
    pub fn run_of(name: &str) -> Option<RunId> {
        RunId::parse(name.strip_suffix(".jsonl")?).ok()
    }

    /// The run whose record has this file name.
    pub fn run_of_record(name: &str) -> Option<RunId> {
        RunId::parse(name.strip_prefix('_')?.strip_suffix(".run")?).ok()
    }

    /// When the lease of a run was last renewed without an event.
    pub fn lease_note(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.journals_of(session).join(format!("_{run}.lease"))
    }

    /// The run whose lease note has this file name.
    pub fn run_of_lease_note(name: &str) -> Option<RunId> {
        RunId::parse(name.strip_prefix('_')?.strip_suffix(".lease")?).ok()
    }

    /// How far the numbers of runs are reserved.
    pub fn run_order(&self) -> PathBuf {
        self.root.join("_run_order")
    }

    /// The store's identity.
    pub fn identity(&self) -> PathBuf {
        self.root.join("_lastword.json")
    }

    /// What the index noted of the sessions.
    pub fn index(&self) -> PathBuf {
        self.root.join("_sessions.index")
    }

    /// The reference program's list of the sessions.
    pub fn foreign_index(&self) -> PathBuf {
        self.root.join("_index.json")
    }

    /// The folder of the commit log.
    pub fn commit_log(&self) -> PathBuf {
        self.root.join("_commit_log")
    }

    /// A file of the commit log.
    pub fn segment(&self, index: u32) -> PathBuf {
        self.commit_log().join(format!("segment-{index:04}"))
    }

    /// The number in the name of a file of the commit log.
    pub fn segment_index_of(name: &str) -> Option<u32> {
        let digits = name.strip_prefix("segment-").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse().ok().filter(|index| name == format!("segment-{index:04}"))
    }

    /// What was kept of this commit log.
    pub fn kept_log(&self) -> PathBuf {
        self.kept().join("_commit_log")
    }

    /// The lock that a writer holds.
    pub fn lock(&self) -> PathBuf {
        self.root.join("_lock")
    }

    /// The folder of the notes of process groups.
    pub fn groups(&self) -> PathBuf {
        self.root.join("_groups")
    }

    /// The note of a process group.
    pub fn group(&self, token: &str) -> PathBuf {
        self.groups().join(token)
    }

    /// What says that sessions were deleted.
    pub fn tombstones(&self) -> PathBuf {
        self.root.join("_tombstones")
    }

    /// What says that this session was deleted.
    pub fn tombstone(&self, session: &SessionId) -> PathBuf {
        self.tombstones().join(format!("{}.json", Self::name_of(session)))
    }

    /// The folder of what was deleted.
    pub fn trash(&self) -> PathBuf {
        self.root.join("_trash")
    }

    /// Where the parts of a deleted session go.
    pub fn trash_of(&self, session: &SessionId, generation: &str) -> PathBuf {
        self.trash().join(format!("{}.{generation}", Self::name_of(session)))
    }

    /// The directories that hold a directory for each session, all of which is deleted with it.
    pub fn directories_of_sessions(&self) -> [PathBuf; 3] {
        let [attachments, branches] = self.directories_of_objects();
        [self.journals(), attachments, branches]
    }

    /// Those of them that hold objects.
    pub fn directories_of_objects(&self) -> [PathBuf; 2] {
        [self.root.join("_attachments"), self.root.join("_branches")]
    }

    /// The directory of a session's objects of one kind.
    pub fn objects_of(&self, session: &SessionId, kind: ObjectKind) -> PathBuf {
        let above = match kind {
            ObjectKind::Attachment | ObjectKind::AttachmentInfo => "_attachments",
            ObjectKind::Branch => "_branches",
        };
        self.root.join(above).join(&*Self::name_of(session))
    }

    /// An object; none if its kind cannot have this key.
    pub fn object(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Option<PathBuf> {
        let name = kind.admits(key).then(|| format!("{key}{}", suffix_of(kind)))?;
        Some(self.objects_of(session, kind).join(name))
    }

    /// The key of the object of this kind that has this file name.
    pub fn key_of_object(kind: ObjectKind, name: &str) -> Option<&str> {
        name.strip_suffix(suffix_of(kind)).filter(|key| kind.admits(key))
    }

    /// The folder of versions and fragments that something replaced.
    pub fn kept(&self) -> PathBuf {
        self.root.join("_kept")
    }

    /// What was kept of this session.
    pub fn kept_of(&self, session: &SessionId) -> PathBuf {
        self.kept().join(&*Self::name_of(session))
    }

    /// Acknowledged lines of a journal that cannot be written.
    pub fn kept_records(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.kept_of(session).join(format!("{run}.records"))
    }

    /// The run whose lines a file with this name holds.
    pub fn run_of_kept_records(name: &str) -> Option<RunId> {
        RunId::parse(name.strip_suffix(".records")?).ok()
    }

    /// The list of the runs with such lines.
    pub fn withheld_list(&self) -> PathBuf {
        self.commit_log().join(WITHHELD_LIST)
    }
}

/// How the files of a kind of object end.
fn suffix_of(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Attachment => "",
        ObjectKind::AttachmentInfo => ".info",
        ObjectKind::Branch => ".json",
    }
}

/// The names that a path consists of.
fn names_in(relative: &Path) -> Vec<&str> {
    relative.iter().filter_map(|part| part.to_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_no_sessions() {
        assert!(Layout::session_of("abc.json").is_some());
        for name in ["_index.json", "_lastword.json", "abc.json.bak", ".DS_Store", "._abc.json", "_tmp-1", "a b.json"] {
            assert!(Layout::session_of(name).is_none(), "{name}");
        }
    }

    #[test]
    fn what_somebody_was_writing_is_told_from_runs_and_sessions_that_are_called_so() {
        for name in ["_tmp-0123456789abcdef0123456789abcdef", "_tmp-repair-1", "s.json.tmp", "s.json.tmp.17", "x.tmp-9"]
        {
            assert!(Layout::is_temp(name), "{name}");
        }
        for name in [
            "_tmp-x.run",
            "_tmp-x.jsonl",
            "_tmp-x.lease",
            "a.tmp.b.jsonl",
            "_a.tmp.b.run",
            "_a.tmp.b.lease",
            "tmp.json",
            "_tmp-x.jsonl-5-00000000",
        ] {
            assert!(!Layout::is_temp(name), "{name}");
        }
    }

    /// The doctor deletes these, and keeps every other.
    #[test]
    fn a_temp_file_of_a_repair_has_the_whole_name_of_one() {
        assert!(Layout::is_repair_temp("_tmp-repair-0123456789abcdef0123456789abcdef"));
        for name in [
            "_tmp-repair-",
            "_tmp-repair-notes",
            "_tmp-repair-0123456789abcdef0123456789abcde",
            "_tmp-repair-0123456789abcdef0123456789abcdef0",
            "_tmp-repair-0123456789abcdef0123456789abcdeg",
            "_tmp-0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdef",
        ] {
            assert!(!Layout::is_repair_temp(name), "{name}");
        }
    }

    #[test]
    fn files_of_others_are_told_from_ours() {
        for ours in [".", "_kept", "_run_journal", "_run_journal/a", "_kept/a", "_trash/a-1"] {
            assert!(Layout::is_our_directory(Path::new(ours)), "{ours}");
        }
        for others in ["a.json", "_lock", "backup", "_run_journal/a/b", "_commit_log/old", "_run_journal/not an id"] {
            assert!(!Layout::is_our_directory(Path::new(others)), "{others}");
        }
        for ours in [
            "a.json",
            "_lock",
            "_run_order",
            "_run_journal/a/r.jsonl",
            "_run_journal/a/_r.run",
            "_run_journal/a/_r.lease",
            "_commit_log/segment-0001",
            "_tombstones/a.json",
            "_kept/a/anything",
            "_tmp-0123456789abcdef0123456789abcdef",
        ] {
            assert!(Layout::is_our_file(Path::new(ours)), "{ours}");
        }
        for others in [
            "notes.txt",
            "a.json.bak",
            "_index.json",
            "_lastword.toml",
            "secrets/key",
            "_run_journal/a/notes.txt",
            "_run_journal/a/b/c.jsonl",
            "_commit_log/other",
            "_run_journal/a",
            "_kept",
            "deploy.sh",
        ] {
            assert!(!Layout::is_our_file(Path::new(others)), "{others}");
        }
    }

    #[test]
    fn a_run_whose_id_looks_like_a_record_is_told_from_one() {
        let (layout, session) = (Layout::new(Path::new("d")), SessionId::parse("s").unwrap());
        let odd = RunId::parse("_a.run").unwrap();
        assert_eq!(layout.journal(&session, &odd).file_name().unwrap(), "_a.run.jsonl");
        assert_eq!(Layout::run_of_record("__a.run.run"), Some(odd));
    }

    #[test]
    fn no_two_files_of_any_runs_have_the_same_name() {
        let (layout, session) = (Layout::new(Path::new("d")), SessionId::parse("s").unwrap());
        let mut seen = std::collections::HashSet::new();
        for id in ["a", "_a", "a.run", "_a.run", "a.lease", "_a.lease", "_a.jsonl", "_a.lease.run", "_a.run.lease"] {
            let run = RunId::parse(id).unwrap();
            let names =
                [layout.journal(&session, &run), layout.run_record(&session, &run), layout.lease_note(&session, &run)]
                    .map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
            let read =
                |name: &str| [Layout::run_of(name), Layout::run_of_record(name), Layout::run_of_lease_note(name)];
            assert_eq!(read(&names[0]), [Some(run.clone()), None, None]);
            assert_eq!(read(&names[1]), [None, Some(run.clone()), None]);
            assert_eq!(read(&names[2]), [None, None, Some(run.clone())]);
            for name in names {
                assert!(!Layout::is_temp(&name), "{name}");
                assert!(seen.insert(name.clone()), "{name}");
            }
        }
    }

    fn session(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    type ReadBack = fn(&str) -> Option<SessionId>;

    /// Every path that is made from the id of a session, with how its name is read back.
    fn paths_of(id: &SessionId) -> Vec<(PathBuf, ReadBack)> {
        let (layout, run) = (Layout::new(Path::new("d")), RunId::parse("r").unwrap());
        let directory: ReadBack = Layout::session_of_directory;
        let above = |path: PathBuf| path.parent().unwrap().to_owned();
        vec![
            (layout.sidecar(id), Layout::session_of),
            (layout.backup(id), Layout::session_of_backup),
            (layout.tombstone(id), Layout::session_of),
            (layout.journals_of(id), directory),
            (layout.kept_of(id), directory),
            (above(layout.journal(id, &run)), directory),
            (above(layout.run_record(id, &run)), directory),
            (above(layout.lease_note(id, &run)), directory),
            (above(layout.kept_records(id, &run)), directory),
            (layout.objects_of(id, ObjectKind::Attachment), directory),
            (above(layout.object(id, ObjectKind::Branch, "b").unwrap()), directory),
            (layout.trash_of(id, "g"), |name| Layout::session_of_directory(name.strip_suffix(".g")?)),
            (Layout::core_transcript(Path::new("c"), id), |name| Layout::session_of(name.strip_prefix("session_")?)),
        ]
    }

    fn name_of(path: &Path) -> &str {
        path.file_name().unwrap().to_str().unwrap()
    }

    #[test]
    fn a_leading_underscore_is_spelt_in_every_name() {
        let names = |id: &str| paths_of(&session(id)).iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        let spelt = names("_abc").into_iter().map(|path| path.to_string_lossy().replace("%5Fabc", "ID"));
        let plain = names("abc").into_iter().map(|path| path.to_string_lossy().replace("abc", "ID"));
        assert!(spelt.eq(plain));
        for (id, name) in [("_", "%5F"), ("__", "%5F_"), ("a_", "a_"), ("-x", "-x"), ("_index", "%5Findex")] {
            assert_eq!(name_of(&Layout::new(Path::new("d")).journals_of(&session(id))), name);
        }
    }

    #[test]
    fn what_is_not_spelt_so_names_no_session() {
        for name in ["_abc", "_", "__", "%5fabc", "%5Fa.b", "%5F%5F", "%5F/", "%", "%5", "%2Dabc", "a%5F", "%5Fa b"] {
            assert_eq!(Layout::session_of_directory(name), None, "{name}");
            assert_eq!(Layout::session_of(&format!("{name}.json")), None, "{name}");
            assert_eq!(Layout::session_of_backup(&format!("{name}.json.bak")), None, "{name}");
        }
        let long = "x".repeat(crate::limits::ID_CHARS_MAX);
        assert_eq!(Layout::session_of_directory(&format!("%5F{long}")), None, "129 characters");
        assert_eq!(
            Layout::session_of_directory(&format!("%5F{}", &long[1..])),
            Some(session(&format!("_{}", &long[1..])))
        );
    }

    #[test]
    fn objects_are_told_from_each_other_and_from_files_of_others() {
        let (layout, id) = (Layout::new(Path::new("d")), session("s"));
        let hash = crate::model::AttachmentId::of_bytes(b"x").to_string();
        let mut seen = std::collections::HashSet::new();
        let kinds = [
            (ObjectKind::Attachment, vec![hash.as_str()]),
            (ObjectKind::AttachmentInfo, vec![hash.as_str()]),
            (ObjectKind::Branch, vec!["b", "_b", ".b", "b.json", "b.info", "_tmp-b", "b.tmp", &hash]),
        ];
        for (kind, keys) in kinds {
            for key in keys {
                let path = layout.object(&id, kind, key).unwrap();
                let name = name_of(&path);
                assert_eq!(Layout::key_of_object(kind, name), Some(key), "{name}");
                assert!(Layout::is_our_file(&layout.relative(&path)) && !Layout::is_temp(name), "{name}");
                assert!(seen.insert(path.clone()), "{name}");
            }
        }
        for others in ["_attachments/s/notes.txt", "_attachments/s/b.json", "_branches/s/x", "_branches/x.json"] {
            assert!(!Layout::is_our_file(Path::new(others)), "{others}");
        }
        for ours in ["_attachments", "_branches", "_attachments/s", "_branches/%5Fs"] {
            assert!(Layout::is_our_directory(Path::new(ours)), "{ours}");
        }
        for others in ["_attachments/_s", "_branches/s/s", "_attachments/a b"] {
            assert!(!Layout::is_our_directory(Path::new(others)), "{others}");
        }
    }

    proptest::proptest! {
        #![proptest_config(crate::seeds::config("layout"))]

        #[test]
        fn the_names_of_any_two_sessions_differ_and_are_read_back(
            one in "[A-Za-z0-9_-]{1,128}", other in "[%5F_a-]{1,6}",
        ) {
            let ids: Vec<SessionId> = [one.clone(), format!("_{}", &one[..one.len().min(127)]), other.clone(), format!("_{other}")]
                .iter()
                .filter_map(|text| SessionId::parse(text).ok())
                .collect();
            for id in &ids {
                for (path, read) in paths_of(id) {
                    proptest::prop_assert_eq!(read(name_of(&path)), Some(id.clone()));
                    proptest::prop_assert!(!name_of(&path).starts_with('_'), "{}", path.display());
                    proptest::prop_assert!(name_of(&path).len() < 250);
                }
                for another in ids.iter().filter(|another| *another != id) {
                    let pairs = paths_of(id).into_iter().zip(paths_of(another));
                    for ((path, _), (other, _)) in pairs {
                        proptest::prop_assert_ne!(path, other);
                    }
                }
            }
            // A name that is read as a session is the name of that session.
            if let Some(id) = Layout::session_of_directory(&other) {
                let path = Layout::new(Path::new("d")).journals_of(&id);
                proptest::prop_assert_eq!(name_of(&path), &other);
            }
        }
    }
}
