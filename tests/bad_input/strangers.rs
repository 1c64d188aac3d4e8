//! Files that are none of ours, or were left half done.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::data::{Data, NO, rid, sid, snapshot, three_lines};
use lastword::NewSession;

fn foreign_names() -> Vec<Vec<u8>> {
    let plain = [".DS_Store", "._x.json", "x.json.bak", "a b.json", "Thumbs.db", ".json", "x.jsonl", "x.json~"];
    let odd: [&[u8]; 3] = [b"caf\xe9.json", b"\xff\xfe", b"_\xff.json"];
    plain.iter().map(|name| name.as_bytes().to_vec()).chain(odd.map(<[u8]>::to_vec)).collect()
}

#[test]
fn foreign_files_are_no_sessions_no_runs_and_stay_as_they_are() {
    let data = Data::new();
    three_lines(&data);
    let folders = [data.root.clone(), data.path("_run_journal"), data.path("_run_journal/bad"), data.path("_kept")];
    fs::create_dir_all(&folders[3]).unwrap();
    let all =
        folders.iter().flat_map(|folder| foreign_names().into_iter().map(|name| folder.join(OsStr::from_bytes(&name))));
    let all: Vec<PathBuf> = all.filter(|path| !path.ends_with("_run_journal/bad/x.jsonl")).collect();
    all.iter().for_each(|path| fs::write(path, b"\0garbage").unwrap());
    data.assert_others_live("foreign files");
    let listed = data.run(&["ls", "--json"]);
    assert_eq!((listed.out.lines().count(), listed.err.as_str()), (2, ""), "{listed:?}");
    assert_eq!(data.reader().runs(&sid("bad")).unwrap(), [rid("run-1")]);
    assert!(all.iter().all(|path| fs::read(path).unwrap() == b"\0garbage"));
}

#[test]
fn temp_files_of_whatever_name_keep_no_writer_out() {
    let data = Data::new();
    for name in [&b"_tmp-0123456789abcdef"[..], b"_tmp-\xff\xfe", b"_tmp-"] {
        fs::write(data.root.join(OsStr::from_bytes(name)), b"half").unwrap();
    }
    fs::create_dir(data.path("_tmp-folder")).unwrap();
    data.assert_others_live("stale temp files");
    assert!(!data.path("_tmp-0123456789abcdef").exists());
}

#[test]
fn a_damaged_tombstone_keeps_no_writer_out_and_revives_nobody() {
    let data = Data::new();
    let store = data.writer();
    store.create(NewSession::titled("Gone").with_id(sid("gone"))).unwrap();
    drop(store);
    fs::create_dir_all(data.path("_tombstones")).unwrap();
    fs::write(data.path("_tombstones/gone.json"), b"").unwrap();
    data.assert_others_live("a damaged tombstone");
    assert_eq!(data.run(&["show", "gone"]).code, NO);
    assert!(snapshot(&data.path("_trash")).keys().any(|path| path.ends_with("session.json")));
}
