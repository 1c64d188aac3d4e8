//! Session ids of nanoid's whole alphabet: a leading `_` or `-` in every command and in every name on disk.

use std::fs;

use lastword::{SessionId, Store};
use serde_json::Value;

use crate::data::{Answer, Data, NO, sid, snapshot};

/// Ids that look like our own files, like options, and like nothing at all.
fn ids() -> Vec<String> {
    let plain = ["_abc", "_", "__", "_index", "_lock", "_lastword", "_run_journal", "_temp", "-x", "-", "--", "--json"];
    let long = [format!("_{}", "x".repeat(127)), "_".repeat(128), "-".repeat(128)];
    let temp = "_tmp-0123456789abcdef0123456789abcdef".to_owned();
    plain.iter().map(|id| id.to_string()).chain(long).chain([temp]).collect()
}

fn spelt(id: &str) -> String {
    id.strip_prefix('_').map_or_else(|| id.to_owned(), |rest| format!("%5F{rest}"))
}

impl Data {
    fn must(&self, args: &[&str], input: &str) -> Answer {
        let answer = self.feed(args, input.as_bytes());
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        answer
    }

    fn listed(&self) -> Vec<String> {
        let out = self.must(&["ls", "--json"], "").out;
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["session_id"].as_str().unwrap().to_owned();
        out.lines().map(id).collect()
    }

    fn remove(&self, id: &str) -> Result<(), lastword::StoreError> {
        self.writer().delete(&sid(id))
    }
}

const TOKEN: &str = "{\"event\":\"token\",\"payload\":{\"text\":\"the last word\"}}\n";

#[test]
fn a_session_of_any_id_is_created_answered_recovered_shown_checked_repaired_and_deleted() {
    let data = Data::new();
    for id in ids() {
        let new = data.must(&["new", "--id", &id, "--title", "t"], "");
        assert_eq!(new.out.trim_end(), id);
        data.must(&["turn", "--message", "hello", "--run", "r1", "--", &id], "");
        // Its process has ended: the turn is dead.
        assert_eq!(data.must(&["append", "--", &id, "r1"], TOKEN).out, "{\"seq\":1}\n");
        let tail = data.must(&["tail", "--", &id, "r1"], "").out;
        let line: Value = serde_json::from_str(tail.trim_end()).unwrap();
        assert_eq!(line["session_id"], id.as_str());
        let name = spelt(&id);
        assert!(data.path(&format!("{name}.json")).is_file(), "{id}");
        assert!(data.path(&format!("_run_journal/{name}/r1.jsonl")).is_file(), "{id}");
        let shown: Value = serde_json::from_str(&data.must(&["show", "--json", "--", &id], "").out).unwrap();
        assert_eq!(shown["session_id"], id.as_str());
        assert_eq!(shown["messages"][1]["content"], "the last word", "{id}: its answer is recovered");
        assert!(shown["messages"][2]["_error"] == true, "{id}: and its marker is there");
    }
    let mut expected = ids();
    expected.push("good".to_owned());
    expected.sort();
    let mut listed = data.listed();
    listed.sort();
    assert_eq!(listed, expected);
    let checked = data.must(&["check", "--json"], "");
    let report: Value = serde_json::from_str(&checked.out).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["code"] == "unsealed_dead_run"), "{checked:?}");
    assert_eq!(findings.len(), ids().len(), "{checked:?}");
    for id in ids() {
        data.must(&["check", "--", &id], "");
    }
    data.must(&["repair", "--apply"], "");
    for id in ids() {
        let session = data.reader().get_session(&sid(&id)).unwrap();
        assert_eq!(session.messages().count(), 3, "{id}");
        data.remove(&id).unwrap();
        let name = spelt(&id);
        assert!(data.path(&format!("_tombstones/{name}.json")).is_file(), "{id}");
        assert!(!data.path(&format!("{name}.json")).exists(), "{id}");
        assert!(!data.path(&format!("_run_journal/{name}")).exists(), "{id}");
        let is_its_trash = |path: &std::path::PathBuf| {
            path.components().any(|part| part.as_os_str().to_string_lossy().starts_with(&format!("{name}.")))
        };
        let trash = snapshot(&data.path("_trash"));
        assert!(trash.keys().any(|path| is_its_trash(path) && path.ends_with("session.json")), "{id}");
        assert_eq!(data.run(&["show", "--", &id]).code, NO, "{id}");
        assert_ne!(data.run(&["new", "--id", &id]).code, 0, "{id}: it stays deleted");
    }
    assert_eq!(data.listed(), ["good"]);
    assert_eq!(data.must(&["check", "--json"], "").code, 0);
    data.assert_others_live("deleted sessions of odd ids");
}

/// Files whose names begin with `_` are ours, or of the reference program, which lists none of them.
#[test]
fn a_file_that_is_called_like_a_session_with_a_leading_underscore_is_none_and_stays() {
    let data = Data::new();
    let foreign = b"{\"session_id\":\"_abc\",\"title\":\"foreign\",\"messages\":[]}";
    let names = ["_abc.json", "_abc.json.bak", "%5fabc.json", "_run_journal/_abc/r1.jsonl", "_tombstones/_abc.json"];
    for name in names {
        fs::create_dir_all(data.path(name).parent().unwrap()).unwrap();
        fs::write(data.path(name), foreign).unwrap();
    }
    assert_eq!(data.listed(), ["good"]);
    assert_eq!(data.run(&["show", "_abc"]).code, NO);
    data.must(&["new", "--id", "_abc", "--title", "ours"], "");
    data.must(&["turn", "_abc", "--message", "hello", "--run", "r1"], "");
    data.must(&["append", "_abc", "r1"], TOKEN);
    assert!(data.must(&["show", "_abc"], "").out.contains("the last word"));
    data.must(&["check"], "");
    data.must(&["repair", "--apply"], "");
    data.remove("_abc").unwrap();
    assert_eq!(data.listed(), ["good"]);
    for name in names {
        assert_eq!(fs::read(data.path(name)).unwrap(), foreign, "{name}");
    }
}

/// A damaged session is reported by its id and by its file, and repaired, with what was there in a directory of its own.
#[test]
fn a_damaged_session_with_a_leading_underscore_is_found_and_repaired() {
    let data = Data::new();
    data.must(&["new", "--id", "_temp", "--title", "t"], "");
    data.must(&["turn", "_temp", "--message", "hello", "--run", "r1"], "");
    data.must(&["append", "_temp", "r1"], &format!("{TOKEN}{{\"event\":\"done\"}}\n"));
    let whole = fs::read(data.path("%5Ftemp.json")).unwrap();
    fs::write(data.path("%5Ftemp.json"), &whole[..whole.len() / 2]).unwrap();
    let checked = data.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&checked.out).unwrap();
    let of_it = |finding: &&Value| finding["code"] == "sidecar_unreadable";
    let finding = report["findings"].as_array().unwrap().iter().find(of_it).unwrap_or_else(|| panic!("{checked:?}"));
    assert_eq!((&finding["session"], &finding["file"]), (&Value::from("_temp"), &Value::from("%5Ftemp.json")));
    data.must(&["repair", "--apply"], "");
    let shown = data.must(&["show", "_temp"], "");
    assert!(shown.out.contains("the last word"), "{shown:?}");
    let kept = snapshot(&data.path("_kept/%5Ftemp"));
    assert!(kept.values().any(|bytes| *bytes == whole[..whole.len() / 2]), "{:?}", kept.keys());
    data.must(&["check"], "");
}

/// That program lists no file with such a name, so that its list is right without it.
#[test]
fn a_list_of_the_reference_program_is_right_without_sessions_that_it_does_not_list() {
    let data = Data::new();
    data.must(&["new", "--id", "_abc"], "");
    fs::write(data.path("_index.json"), b"[{\"session_id\":\"good\"}]").unwrap();
    let checked = data.must(&["check", "--json"], "");
    assert!(!checked.out.contains("index_drift"), "{checked:?}");
}

/// The transcript that the agent itself keeps is found by the name that is spelt in the same way.
#[test]
fn a_core_transcript_helps_a_session_with_a_leading_underscore() {
    let data = Data::new();
    let core = data.temp.path().join("core");
    fs::create_dir(&core).unwrap();
    data.must(&["new", "--id", "_abc"], "");
    data.must(&["turn", "_abc", "--message", "hello", "--run", "r1"], "");
    let rows = "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"},{\"role\":\"assistant\",\"content\":\"core words\"}]}";
    fs::write(core.join("session_%5Fabc.json"), rows).unwrap();
    let shown = data.must(&["--core", core.to_str().unwrap(), "show", "_abc"], "");
    assert!(shown.out.contains("core words"), "{shown:?}");
}

#[test]
fn the_text_of_an_id_never_leaves_the_data_directory() {
    for bad in ["", ".", "..", "%5Fa", "_/a", "_..", "_.", "_a b", "a.b", "_\u{e9}", "_\0", &"_".repeat(129)] {
        assert!(SessionId::parse(bad).is_err(), "{bad:?}");
    }
    let data = Data::new();
    let store: Store = data.writer();
    assert!(store.get_session(&sid("_lastword")).is_err() && store.metadata(&sid("_lock")).is_err());
}
