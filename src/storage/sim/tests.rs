//! The simulated disk against its own fault model.

use std::path::Path;

use super::*;

fn write(disk: &SimDisk, path: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.open(Path::new(path), Access::CreateNew).unwrap();
    file.write_at(bytes, 0).unwrap();
    file
}

fn read(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path), Access::Read).ok()?;
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn sync_root(disk: &SimDisk) {
    disk.sync_dir(Path::new("/")).unwrap();
}

#[test]
fn unsynced_bytes_may_be_lost_kept_torn_or_zeroed() {
    let after = |crash| {
        let disk = SimDisk::new();
        let file = write(&disk, "/a", b"old");
        file.sync().unwrap();
        sync_root(&disk);
        file.write_at(b"newer", 3).unwrap();
        disk.power_cut(crash);
        String::from_utf8(read(&disk, "/a").unwrap()).unwrap()
    };
    assert_eq!(after(Crash::LoseAll), "old");
    assert_eq!(after(Crash::KeepAll), "oldnewer");
    assert_eq!(after(Crash::TearOnly(0)), "oldne");
    assert_eq!(after(Crash::ZeroOnly(0)), "old\0\0\0\0\0");
}

#[test]
fn a_name_needs_its_folder_synced() {
    let disk = SimDisk::new();
    write(&disk, "/a", b"x").sync().unwrap();
    disk.power_cut(Crash::LoseAll);
    assert_eq!(read(&disk, "/a"), None);
}

#[test]
fn a_rename_happened_or_did_not() {
    for (crash, a, b) in [(Crash::LoseAll, Some("new"), Some("old")), (Crash::KeepAll, None, Some("new"))] {
        let disk = SimDisk::new();
        write(&disk, "/a", b"new").sync().unwrap();
        write(&disk, "/b", b"old").sync().unwrap();
        sync_root(&disk);
        disk.rename(Path::new("/a"), Path::new("/b")).unwrap();
        disk.power_cut(crash);
        assert_eq!(read(&disk, "/a"), a.map(|text| text.as_bytes().to_vec()));
        assert_eq!(read(&disk, "/b"), b.map(|text| text.as_bytes().to_vec()));
    }
}

#[test]
fn changes_of_a_folder_may_be_reordered() {
    let disk = SimDisk::new();
    write(&disk, "/first", b"").sync().unwrap();
    write(&disk, "/second", b"").sync().unwrap();
    disk.power_cut(Crash::LoseOnly(0));
    assert!(read(&disk, "/first").is_none() && read(&disk, "/second").is_some());
}

#[test]
fn a_removal_that_was_not_synced_may_come_back() {
    let disk = SimDisk::new();
    write(&disk, "/a", b"x").sync().unwrap();
    sync_root(&disk);
    disk.remove_file(Path::new("/a")).unwrap();
    disk.power_cut(Crash::LoseAll);
    assert_eq!(read(&disk, "/a").unwrap(), b"x");
}

#[test]
fn a_failed_sync_forgets_and_a_later_one_proves_nothing() {
    let disk = SimDisk::new();
    let file = write(&disk, "/a", b"precious");
    sync_root(&disk);
    disk.fail(disk.operations() + 1, Fault::Eio);
    assert!(file.sync().is_err());
    assert!(file.sync().is_ok());
    assert_eq!(read(&disk, "/a").unwrap(), b"precious");
    disk.power_cut(Crash::KeepAll);
    assert_eq!(read(&disk, "/a").unwrap(), b"");
}

#[test]
fn faults_strike_the_operation_they_were_set_for() {
    let disk = SimDisk::new();
    let file = write(&disk, "/a", b"");
    let next = disk.operations() + 1;
    disk.fail(next, Fault::ShortWrite(2));
    disk.fail(next + 1, Fault::Enospc);
    assert_eq!(file.write_at(b"abcd", 0).unwrap(), 2);
    assert_eq!(file.write_at(b"cd", 2).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.write_at(b"cd", 2).unwrap(), 2);
    assert_eq!(read(&disk, "/a").unwrap(), b"abcd");
}

#[test]
fn a_stopped_machine_does_nothing_and_a_kill_keeps_what_was_written() {
    let disk = SimDisk::new();
    let lock = disk.lock(Path::new("/lock")).unwrap();
    assert_eq!(disk.lock(Path::new("/lock")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let file = write(&disk, "/a", b"x");
    let boot = disk.boot_id();
    disk.stop_before(disk.operations() + 1);
    assert!(file.write_at(b"y", 1).is_err() && disk.stat(Path::new("/a")).is_err());
    disk.kill();
    assert!(file.write_at(b"y", 1).is_err(), "a file of a dead program");
    assert_eq!(read(&disk, "/a").unwrap(), b"x");
    assert_eq!(disk.boot_id(), boot);
    let again = disk.lock(Path::new("/lock")).unwrap();
    drop(lock);
    assert!(disk.lock(Path::new("/lock")).is_err(), "a dead program's lock lets go of nothing");
    drop(again);
    assert!(disk.lock(Path::new("/lock")).is_ok());
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed| {
        let disk = SimDisk::new();
        for number in 0..8 {
            let file = write(&disk, &format!("/{number}"), &[number; 32]);
            if number % 3 == 0 {
                file.sync().unwrap();
            }
            file.write_at(&[number + 100; 9], 32).unwrap();
        }
        disk.power_cut(Crash::Seeded(seed));
        let names = disk.read_dir(Path::new("/")).unwrap();
        let files: Vec<_> = names.iter().map(|entry| read(&disk, &format!("/{}", entry.name))).collect();
        (disk.log(), names, files)
    };
    assert_eq!(run(5), run(5));
    assert!((0..20).any(|seed| run(seed).2 != run(5).2), "seeds make no difference");
}

#[test]
fn a_rename_that_becomes_durable_late_does_not_undo_what_came_after_it() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/from")).unwrap();
    disk.create_dir(Path::new("/to")).unwrap();
    write(&disk, "/from/a", b"old").sync().unwrap();
    write(&disk, "/to/b", b"new").sync().unwrap();
    disk.rename(Path::new("/from/a"), Path::new("/to/c")).unwrap();
    disk.rename(Path::new("/to/b"), Path::new("/to/c")).unwrap();
    for folder in ["/to", "/from", "/"] {
        disk.sync_dir(Path::new(folder)).unwrap();
    }
    disk.power_cut(Crash::LoseAll);
    assert_eq!(read(&disk, "/to/c").unwrap(), b"new");
    assert!(read(&disk, "/from/a").is_none());
}
