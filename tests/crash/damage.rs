//! Damage to what guards numbers: run records and the checksums of lines.

use std::path::Path;
use std::sync::Arc;

use lastword::doctor::{self, DoctorOptions};
use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{Event, NewSession, ReadOptions, UserTurn};

use crate::ledger::run_id;
use crate::logged::layout;
use crate::machine::{DATA, created, id, open, prepared};

#[test]
fn without_a_boot_id_a_run_whose_record_was_damaged_takes_no_more_events() {
    let disk = SimDisk::new().without_boot_id();
    let store = open(&disk).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    (0..3).for_each(|_| drop(run.append(Event::token("word ")).unwrap()));
    drop((run, store));
    // The last line rots, so that its number must not be given again; and the record that would tell is damaged.
    let journal = layout().journal(&id(), &run_id("r"));
    let len = disk.files()[&journal].len() as u64;
    disk.rot(&journal, len - 60, 2).unwrap();
    disk.rot(layout().run_record(&id(), &run_id("r")), 20, 1).unwrap();
    doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    let store = open(&disk).unwrap();
    let refused = store.resume_run(&id(), &run_id("r")).unwrap_err();
    assert_eq!(refused.code(), "fenced", "{refused:?}");
}

/// No flipped bit of the record of a removed run lets its id be taken again.
#[test]
fn a_damaged_record_frees_no_id() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.adopt_run(&id(), &run_id("r")).unwrap();
    run.append(Event::token("x")).unwrap();
    drop(run);
    store.remove_run(&id(), &run_id("r")).unwrap();
    drop(store);
    let record = layout().run_record(&id(), &run_id("r"));
    let bits = disk.files()[&record].len() as u64 * 8;
    for bit in 0..bits {
        let disk = disk.copy();
        disk.rot(&record, bit / 8, (bit % 8) as u8).unwrap();
        let store = open(&disk).unwrap();
        let turn = UserTurn::text("again").with_run(run_id("r"));
        let refused = store.begin_run(&id(), turn).map(drop).unwrap_err();
        assert_eq!(refused.code(), "exists", "bit {bit}: {refused:?}");
    }
}

/// No flipped bit of a checksum turns a line of ours into one that is believed without.
#[test]
fn every_flipped_bit_of_a_checksum_is_damage() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.adopt_run(&id(), &run_id("r")).unwrap();
    for word in ["one", "two", "three"] {
        run.append(Event::token(word)).unwrap();
    }
    drop((run, store));
    let journal = layout().journal(&id(), &run_id("r"));
    let lines: Vec<usize> = disk.files()[&journal].split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
    for line in 0..3 {
        let end: usize = lines[..=line].iter().sum();
        for at in end - 19..end - 1 {
            for bit in 0..8 {
                let disk = disk.copy();
                disk.rot(&journal, at as u64, bit).unwrap();
                let store = open(&disk).unwrap();
                let found = store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap();
                let what = format!("line {line}, byte {at}, bit {bit}: {found:?}");
                assert!(!found.damage.is_empty(), "{what}");
                assert_eq!(found.events.len(), 2, "{what}");
                let run = store.resume_run(&id(), &run_id("r")).unwrap();
                assert_eq!(run.append(Event::token("four")).unwrap().last_seq, 4, "{what}: a number was given again");
            }
        }
    }
}

/// A line of another program.
fn foreign_line(seq: u64) -> Vec<u8> {
    format!("{{\"seq\":{seq},\"event\":\"token\",\"payload\":{{\"text\":\"x\"}}}}\n").into_bytes()
}

/// The journal of a run of which this program wrote two lines, and whose record is lost.
fn without_record() -> (SimDisk, Vec<u8>) {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.adopt_run(&id(), &run_id("r")).unwrap();
    (0..2).for_each(|_| drop(run.append(Event::token("word ")).unwrap()));
    drop((run, store));
    disk.remove_file(&layout().run_record(&id(), &run_id("r"))).unwrap();
    let own = disk.files()[&layout().journal(&id(), &run_id("r"))].clone();
    (disk, own)
}

/// Without the record no program knows which numbers readers have seen. One line of ours anywhere tells that there was one.
#[test]
fn a_mixed_journal_whose_record_is_lost_takes_no_more_events() {
    let (disk, own) = without_record();
    let journal = layout().journal(&id(), &run_id("r"));
    let (third, fourth) = (foreign_line(3), foreign_line(4));
    let mixed: [(&str, Vec<u8>); 5] = [
        ("ours at the end", [&foreign_line(1), &own[..]].concat()),
        ("another program's at the end", [&own[..], &third].concat()),
        ("two of another program at the end", [&own[..], &third, &fourth].concat()),
        ("one at the end that lacks its line feed", [&own[..], &third[..third.len() - 1]].concat()),
        ("a torn one at the end", [&own[..], &third, &fourth[..20]].concat()),
    ];
    for (name, bytes) in mixed {
        let disk = disk.copy();
        put(&disk, &journal, &bytes);
        let refused = open(&disk).unwrap().resume_run(&id(), &run_id("r")).unwrap_err();
        assert_eq!(refused.code(), "fenced", "{name}: {refused:?}");
        assert_eq!(disk.files()[&journal], bytes, "{name}: it is left as it is");
    }
    put(&disk, &journal, &[foreign_line(1), foreign_line(2)].concat());
    let taken_over = open(&disk).unwrap().resume_run(&id(), &run_id("r")).unwrap();
    assert_eq!(taken_over.append(Event::token("x")).unwrap().last_seq, 3, "all of it is another program's");
}

fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, Access::Write).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
}

/// The log still holds the events of a run that was removed, and the record that tells of the removal has rotted.
#[test]
fn a_removed_run_does_not_come_back_when_its_record_rots() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.adopt_run(&id(), &run_id("r")).unwrap();
    run.append_durable(Event::token("removed")).unwrap().wait().unwrap();
    drop(run);
    store.remove_run(&id(), &run_id("r")).unwrap();
    disk.kill();
    let journal = layout().journal(&id(), &run_id("r"));
    assert!(!disk.files().contains_key(&journal));
    disk.rot(layout().run_record(&id(), &run_id("r")), 20, 1).unwrap();
    for life in ["first", "second"] {
        let store = open(&disk).unwrap();
        assert!(!disk.files().contains_key(&journal), "{life}: a replay has made it again");
        assert!(store.resume_run(&id(), &run_id("r")).is_err(), "{life}");
        assert!(store.adopt_run(&id(), &run_id("r")).is_err(), "{life}: its id is free");
        assert!(!disk.files().contains_key(&journal), "{life}: a resumption has made it again");
        drop(store);
        disk.kill();
    }
}

/// A torn line is not an event, but its bytes are words of an answer.
#[test]
fn a_torn_line_is_kept_before_it_is_cut_off() {
    for (torn, is_kept) in [(&b"{\"seq\":2,\"event\":\"tok"[..], true), (&[0; 100], false)] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.adopt_run(&id(), &run_id("r")).unwrap();
        run.append(Event::token("one")).unwrap();
        disk.kill();
        let journal = layout().journal(&id(), &run_id("r"));
        let whole = disk.files()[&journal].clone();
        put(&disk, &journal, &[&whole[..], torn].concat());
        open(&disk).unwrap().resume_run(&id(), &run_id("r")).unwrap();
        disk.power_cut(Crash::LoseAll);
        let files = disk.files();
        assert_eq!(files[&journal], whole);
        let kept: Vec<_> = files.iter().filter(|(path, _)| path.starts_with(layout().kept_of(&id()))).collect();
        assert_eq!(kept.len(), usize::from(is_kept), "{kept:?}");
        assert!(kept.iter().all(|(_, bytes)| *bytes == torn), "{kept:?}");
    }
}
