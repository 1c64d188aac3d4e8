//! Attachments and branches beside a session: known directories, damage that is told, and leftovers of deleted sessions.

use std::fs;

use lastword::doctor::{Code, Severity};
use lastword::format::encode_branch;
use lastword::model::{Branch, BranchReason, Cut};

use crate::data::{Data, allow, sid};

const BRANCH: &str = "_branches/talk/run-9.json";

/// A branch of `talk` with one row.
fn branch(id: &str) -> Vec<u8> {
    let rows = vec![r#"{"role":"assistant","content":"by bus"}"#.to_owned()];
    let cut = Cut { at_row: 3, rows, ..Cut::default() };
    encode_branch(&sid("talk"), &Branch::new(id, cut, BranchReason::Regenerate, 7.0)).unwrap()
}

/// A healthy directory with an attachment and a branch, and the names of the files of the attachment.
fn with_objects() -> (Data, [String; 2]) {
    let data = Data::healthy();
    let id = data.store().put_attachment(&sid("talk"), b"picture", "image/png", None).unwrap().id;
    data.put(BRANCH, &branch("run-9"));
    let name = format!("_attachments/talk/{id}");
    let info = format!("{name}.info");
    (data, [name, info])
}

#[test]
fn a_directory_with_attachments_and_branches_has_no_findings() {
    let (data, _) = with_objects();
    for name in ["_attachments", "_branches", "_branches/talk"] {
        allow(&data.path(name), 0o700);
    }
    allow(&data.path(BRANCH), 0o600);
    assert_eq!(data.findings(), []);
    let before = data.files();
    data.repair();
    let after = data.files();
    assert!(
        before.iter().filter(|(name, _)| name.contains("talk")).all(|(name, bytes)| after.get(name) == Some(bytes))
    );
}

/// Objects of a session whose file is missing make no session, and nothing is wrong with them.
#[test]
fn objects_alone_make_no_session() {
    let data = Data::healthy();
    data.put("_branches/other/x.json", b"{}");
    let found = data.findings();
    assert!(found.iter().all(|finding| finding.code == Code::OpenPermissions), "{found:#?}");
}

#[test]
fn objects_that_others_may_read_and_unfinished_ones_are_told_and_seen_to() {
    let (data, [bytes, info]) = with_objects();
    let ours = ["_attachments", "_attachments/talk", "_branches", "_branches/talk", &bytes, &info, BRANCH];
    for name in ours {
        allow(&data.path(name), if data.path(name).is_dir() { 0o755 } else { 0o644 });
    }
    let temps = ["_attachments/talk/_tmp-0123", "_branches/talk/_tmp-0123456789abcdef0123456789abcdef"];
    temps.iter().for_each(|name| data.put(name, b"half"));
    temps.iter().for_each(|name| allow(&data.path(name), 0o600));
    let found = data.findings();
    let files =
        |code| found.iter().filter(move |finding| finding.code == code).map(|finding| finding.file.to_str().unwrap());
    let mut open: Vec<_> = files(Code::OpenPermissions).collect();
    open.sort_unstable();
    let mut expected = ours.to_vec();
    expected.sort_unstable();
    assert_eq!(open, expected);
    assert_eq!(files(Code::StaleTemp).collect::<Vec<_>>().len(), 2, "{found:#?}");
    data.repair();
    assert_eq!(data.findings(), []);
    assert!(temps.iter().all(|name| !data.path(name).exists()));
}

#[test]
fn objects_of_a_deleted_session_are_leftovers_and_go_to_the_trash() {
    let (data, [bytes, info]) = with_objects();
    let before = data.files();
    data.store().delete(&sid("talk")).unwrap();
    assert_eq!(data.bad_codes(), []);
    for name in [&bytes, &info, BRANCH] {
        data.put(name, &before[name]);
    }
    assert_eq!(data.bad_codes(), [Code::DeletedLeftover; 2]);
    data.repair();
    assert_eq!(data.bad_codes(), []);
    for name in [&bytes, &info, BRANCH] {
        assert!(!data.path(name).exists(), "{name}");
        let copies =
            data.files().into_iter().filter(|(file, found)| file.starts_with("_trash/talk.") && *found == before[name]);
        assert_eq!(copies.count(), 2, "{name}: that of the deletion, and that of the repair");
    }
}

#[test]
fn damaged_objects_are_told_with_their_file_and_left_alone() {
    let (data, [bytes, info]) = with_objects();
    data.put(&bytes, b"pictures");
    data.put(&info, b"{\"version\":1,");
    data.put(BRANCH, b"{\"version\":");
    for name in [&bytes, &info, BRANCH, "_branches", "_branches/talk"] {
        allow(&data.path(name), if data.path(name).is_dir() { 0o700 } else { 0o600 });
    }
    let mut told: Vec<_> = data
        .findings()
        .into_iter()
        .map(|finding| (finding.file.to_str().unwrap().to_owned(), finding.code, finding.severity, finding.is_mendable))
        .collect();
    told.sort();
    let mut expected = [
        (bytes.clone(), Code::ChecksumMismatch, Severity::Damage, false),
        (info.clone(), Code::BadJson, Severity::Info, false),
        (BRANCH.to_owned(), Code::BadJson, Severity::Damage, false),
    ];
    expected.sort();
    assert_eq!(told, expected);
    let before = [&bytes, &info, BRANCH].map(|name| fs::read(data.path(name)).unwrap());
    data.repair();
    assert_eq!(before, [&bytes, &info, BRANCH].map(|name| fs::read(data.path(name)).unwrap()));
}

/// The list of branches passes over each of these.
#[test]
fn a_branch_that_is_not_listed_is_told_with_the_reason() {
    let whole = String::from_utf8(branch("run-9")).unwrap();
    let cases = [
        (whole.replace("by bus", "by bUs"), Code::ChecksumMismatch, Severity::Damage),
        ("{\"version\":1}\n".to_owned(), Code::BadJson, Severity::Damage),
        ("{\"version\":2,\"turns\":[]}\n".to_owned(), Code::NewerFormat, Severity::Warning),
        (String::from_utf8(branch("run-8")).unwrap(), Code::ForeignId, Severity::Warning),
    ];
    for (bytes, code, severity) in cases {
        let (data, _) = with_objects();
        data.put(BRANCH, bytes.as_bytes());
        let found = data.findings();
        let told: Vec<_> = found.iter().filter(|finding| finding.file.to_str() == Some(BRANCH)).collect();
        let [finding] = told[..] else { panic!("{code}: {found:#?}") };
        assert_eq!((finding.code, finding.severity, finding.is_mendable), (code, severity, false));
        data.put("_tmp-0123456789abcdef0123456789abcdef", b"half");
        let repair = data.repair();
        assert!(repair.actions.iter().any(|action| action.codes == [Code::StaleTemp]), "{code}: {:?}", repair.actions);
        assert_eq!(data.read(BRANCH), bytes.as_bytes());
        assert!(data.check().is_bad());
    }
}

#[test]
fn a_file_of_a_message_or_of_a_branch_that_is_not_stored_is_told_and_left_alone() {
    let (data, [bytes, _]) = with_objects();
    let url = format!("lastword:{}", bytes.rsplit('/').next().unwrap());
    let file = serde_json::json!({"type": "file", "mediaType": "image/png", "url": url});
    let row = serde_json::json!({"role": "user", "content": "see", "attachments": [file]});
    let rows = vec![row.to_string()];
    let cut = Cut { at_row: 3, rows, ..Cut::default() };
    let branch = encode_branch(&sid("talk"), &Branch::new("run-9", cut, BranchReason::Edit, 7.0)).unwrap();
    let whole = data.read(BRANCH);
    data.put(BRANCH, &branch);
    assert_eq!(data.bad_codes(), []);
    let picture = data.read(&bytes);
    for (is_in_branch, place) in [(true, "branch run-9"), (false, "the session")] {
        data.remove(&bytes);
        let found: Vec<_> = data.findings().into_iter().filter(|f| f.severity == Severity::Damage).collect();
        let [finding] = &found[..] else { panic!("{place}: {found:#?}") };
        assert_eq!((finding.code, finding.is_mendable), (Code::ChecksumMismatch, false));
        assert_eq!(finding.file.to_str(), Some(&*bytes));
        assert!(finding.message.starts_with(place), "{}", finding.message);
        data.repair();
        assert!(!data.path(&bytes).exists());
        data.put(&bytes, &picture);
        if is_in_branch {
            data.put(BRANCH, &whole);
            data.edit_sidecar("talk.json", |stored| stored["messages"][0]["attachments"] = serde_json::json!([file]));
            data.repair();
            assert_eq!(data.bad_codes(), []);
        }
    }
}
