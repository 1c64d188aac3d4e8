//! Branches: listed, restored, refused where they do not belong, removed with their session.

use std::fs;

use lastword::{
    Event, List, NewSession, Options, Outcome, Replaces, RunId, SaveIntent, SaveOptions, Session, Store, StoreError,
    UserTurn,
};

use crate::fixture::{Fixture, fixture};
use crate::regenerate::talk;

impl Fixture {
    fn say(&self, name: &str, turn: UserTurn) {
        let run = self.store.begin_run(&self.id, turn.with_run(RunId::parse(name).unwrap())).unwrap();
        run.append(Event::token(&format!("answer of {name}"))).unwrap();
        run.finish(Outcome::Completed).unwrap();
    }

    fn again(&self, name: &str, old: &str) {
        self.say(name, UserTurn { replaces: Some(Replaces::Answer(old.to_owned())), ..UserTurn::default() });
    }

    fn ids(&self) -> Vec<String> {
        self.store.branches(&self.id).unwrap().into_iter().map(|branch| branch.branch_id).collect()
    }

    /// Two turns, the second of which was answered twice.
    fn twice() -> Self {
        let fixture = fixture();
        fixture.say("r1", UserTurn::text("one"));
        fixture.say("r2", UserTurn::text("two"));
        fixture.again("r3", "r2");
        fixture
    }

    fn texts(session: &Session) -> Vec<String> {
        session.texts(List::Messages).map(str::to_owned).collect()
    }
}

const SHRINK: SaveOptions = SaveOptions { intent: SaveIntent::Shrink, touch_updated_at: true };

#[test]
fn a_branch_and_the_rows_in_its_place_change_places() {
    let fixture = Fixture::twice();
    let replaced = Fixture::texts(&fixture.store.get_session(&fixture.id).unwrap());
    let restored = fixture.store.restore_branch(&fixture.id, "r3", |_| true).unwrap().unwrap();
    assert_eq!(talk(&fixture.store, &fixture.id), ["one: answer of r1", "two: answer of r2"]);
    assert_eq!(restored.revision(), fixture.store.get_session(&fixture.id).unwrap().revision());
    let ids = fixture.ids();
    assert_eq!(ids.len(), 1);
    assert_ne!(ids[0], "r3");
    let again = fixture.store.restore_branch(&fixture.id, "r3", |_| true).unwrap_err();
    assert!(matches!(again, StoreError::UnknownBranch { .. }), "it is no branch any more: {again:?}");
    assert_eq!(again.code(), "not_found");
    let back = fixture.store.restore_branch(&fixture.id, &ids[0], |_| true).unwrap().unwrap();
    assert_eq!(Fixture::texts(&back), replaced);
    assert_eq!(fixture.ids().len(), 1);
}

#[test]
fn a_restore_with_another_revision_changes_nothing() {
    let fixture = Fixture::twice();
    let old = fixture.store.get_session(&fixture.id).unwrap().revision().cloned();
    fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set_text("title", "x")).unwrap();
    let before = Fixture::texts(&fixture.store.get_session(&fixture.id).unwrap());
    let is_old = |found: Option<&lastword::Revision>| found == old.as_ref();
    assert!(fixture.store.restore_branch(&fixture.id, "r3", is_old).unwrap().is_none());
    assert_eq!(Fixture::texts(&fixture.store.get_session(&fixture.id).unwrap()), before);
    assert_eq!(fixture.ids(), ["r3"]);
    let unknown = fixture.store.restore_branch(&fixture.id, "../x", |_| true).unwrap_err();
    assert_eq!(unknown.code(), "not_found");
}

#[test]
fn a_branch_of_another_conversation_is_a_conflict_until_that_one_is_back() {
    let fixture = Fixture::twice();
    fixture.again("r4", "r1");
    assert_eq!(fixture.ids(), ["r3", "r4"]);
    fixture.say("r5", UserTurn::text("two"));
    let refused = fixture.store.restore_branch(&fixture.id, "r3", |_| true).unwrap_err();
    assert!(matches!(refused, StoreError::BranchConflict { .. }), "{refused:?}");
    assert_eq!(refused.code(), "conflict");
    fixture.store.restore_branch(&fixture.id, "r4", |_| true).unwrap().unwrap();
    assert_eq!(talk(&fixture.store, &fixture.id), ["one: answer of r1", "two: answer of r3"]);
    fixture.store.restore_branch(&fixture.id, "r3", |_| true).unwrap().unwrap();
    assert_eq!(talk(&fixture.store, &fixture.id), ["one: answer of r1", "two: answer of r2"]);
}

/// Where nothing follows the same conversation any more, the branch is put at its end.
#[test]
fn a_branch_is_restored_after_its_turn_was_cut_off() {
    let fixture = Fixture::twice();
    fixture.store.update(&fixture.id, SHRINK, |session| session.truncate(List::Messages, 2).unwrap()).unwrap();
    fixture.store.restore_branch(&fixture.id, "r3", |_| true).unwrap().unwrap();
    assert_eq!(talk(&fixture.store, &fixture.id), ["one: answer of r1", "two: answer of r2"]);
    assert_eq!(fixture.ids(), Vec::<String>::new());
}

#[test]
fn a_branch_survives_a_restart_and_goes_with_its_session() {
    let Fixture { folder, store, id } = Fixture::twice();
    drop(store);
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let reader = Store::open_read_only(folder.path(), Options::default()).unwrap();
    assert_eq!(store.branches(&id).unwrap(), reader.branches(&id).unwrap());
    let branch = &store.branches(&id).unwrap()[0];
    assert_eq!((branch.run_id.as_deref(), branch.at_row, branch.rows), (Some("r2"), 2, 2));
    store.delete(&id).unwrap();
    assert_eq!(store.branches(&id).unwrap_err().code(), "not_found");
    let other = store.create(NewSession::titled("x")).unwrap();
    assert_eq!(store.branches(&other).unwrap(), []);
}

/// One damaged branch costs no other.
#[test]
fn a_damaged_branch_is_passed_over() {
    let fixture = Fixture::twice();
    fixture.again("r4", "r3");
    assert_eq!(fixture.ids(), ["r3", "r4"]);
    let path = fixture.folder.path().join(format!("_branches/{}/r3.json", fixture.id));
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(fixture.ids(), ["r4"]);
    let refused = fixture.store.restore_branch(&fixture.id, "r3", |_| true).unwrap_err();
    assert_eq!(refused.code(), "not_found");
}

/// Something else in the place of a branch costs no other, and does not keep the session from being read.
#[cfg(unix)]
#[test]
fn a_branch_that_cannot_be_read_is_passed_over() {
    let Fixture { folder, store, id } = Fixture::twice();
    drop(store);
    let branches = folder.path().join(format!("_branches/{id}"));
    fs::create_dir(branches.join("q.json")).unwrap();
    std::os::unix::fs::symlink("missing", branches.join("l.json")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(branches.join("f.json")).status().unwrap().success());
    let fixture = Fixture { store: Store::open(folder.path(), Options::default()).unwrap(), folder, id };
    fixture.store.get_session(&fixture.id).unwrap();
    assert_eq!(fixture.ids(), ["r3"]);
    fixture.again("r4", "r3");
    assert_eq!(fixture.ids(), ["r3", "r4"]);
}

/// The object is plain JSON, as docs/format.md has it.
#[test]
fn a_branch_is_plain_json() {
    let fixture = Fixture::twice();
    let path = fixture.folder.path().join(format!("_branches/{}/r3.json", fixture.id));
    let branch: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let keys: Vec<&str> = branch.as_object().unwrap().keys().map(String::as_str).collect();
    for key in [
        "version",
        "branch_id",
        "session_id",
        "run_id",
        "at_row",
        "after",
        "rows",
        "tool_calls",
        "context_messages",
        "replaced_at",
        "reason",
        "crc",
    ] {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    assert_eq!(
        (&branch["branch_id"], &branch["run_id"], &branch["reason"]),
        (&"r3".into(), &"r2".into(), &"regenerate".into())
    );
    assert_eq!(branch["rows"][1]["content"], "answer of r2");
}
