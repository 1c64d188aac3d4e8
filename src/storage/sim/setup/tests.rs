//! Users, links, file systems, descriptors, space, inodes and times of the simulated disk, each against the fault model.

use std::path::Path;

use super::super::*;
use crate::storage::disk::{Access, Disk, DiskFile};

const OTHER: u32 = 2000;

fn create(disk: &SimDisk, path: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.open(Path::new(path), Access::CreateNew).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
    file
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn no_more_files_are_open_than_are_allowed_and_a_closed_one_makes_room() {
    let disk = SimDisk::new();
    let first = create(&disk, "/a", b"x");
    disk.limit_open_files(Some(2));
    assert_eq!(disk.open_files_max(), 2);
    let dir = disk.open_dir(Path::new("/")).unwrap();
    for refused in [
        disk.open(Path::new("/a"), Access::Read).map(drop),
        disk.open(Path::new("/new"), Access::CreateNew).map(drop),
        disk.open(Path::new("/missing"), Access::Read).map(drop),
        disk.open_dir(Path::new("/")).map(drop),
        disk.lock(Path::new("/lock")).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(24));
    }
    assert!(disk.stat(Path::new("/new")).is_err(), "nothing was created");
    dir.sync().unwrap();
    drop(first);
    let lock = disk.lock(Path::new("/lock")).unwrap();
    assert_eq!(disk.open_files(), 2);
    drop((lock, dir));
    assert_eq!(disk.open_files(), 0);
    let held = disk.open(Path::new("/a"), Access::Read).unwrap();
    disk.kill();
    assert_eq!(disk.open_files(), 0, "what a dead program held is closed");
    drop(held);
    assert_eq!(disk.open_files(), 0);
}

#[test]
fn a_user_may_do_what_the_bits_of_owner_or_others_allow() {
    let disk = SimDisk::new();
    create(&disk, "/a", b"x");
    disk.create_dir(Path::new("/d")).unwrap();
    create(&disk, "/d/b", b"y");
    let open = |path: &str, access| disk.open(Path::new(path), access).map(drop);
    disk.set_mode("/a", 0o400).unwrap();
    open("/a", Access::Read).unwrap();
    assert_eq!(kind(open("/a", Access::Write)), io::ErrorKind::PermissionDenied);
    disk.set_owner("/a", OTHER).unwrap();
    assert_eq!(kind(open("/a", Access::Read)), io::ErrorKind::PermissionDenied);
    disk.set_mode("/a", 0o404).unwrap();
    open("/a", Access::Read).unwrap();
    disk.set_mode("/d", 0o500).unwrap();
    assert_eq!(kind(open("/d/new", Access::CreateNew)), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(disk.remove_file(Path::new("/d/b"))), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(disk.rename(Path::new("/d/b"), Path::new("/b"))), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(disk.create_dir(Path::new("/d/e"))), io::ErrorKind::PermissionDenied);
    assert_eq!(disk.read_dir(Path::new("/d")).unwrap().len(), 1);
    disk.set_mode("/d", 0o300).unwrap();
    assert_eq!(kind(disk.read_dir(Path::new("/d"))), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(disk.sync_dir(Path::new("/d"))), io::ErrorKind::PermissionDenied);
    disk.stat(Path::new("/d/b")).unwrap();
    disk.set_mode("/d", 0o600).unwrap();
    assert_eq!(kind(disk.stat(Path::new("/d/b"))), io::ErrorKind::PermissionDenied, "it may not be searched");
    disk.run_as(0);
    disk.stat(Path::new("/d/b")).unwrap();
    create(&disk, "/by_root", b"");
    disk.run_as(SimDisk::USER);
    assert_eq!(kind(open("/by_root", Access::Read)), io::ErrorKind::PermissionDenied, "it belongs to its creator");
}

#[test]
fn links_are_followed_where_a_system_follows_them() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    create(&disk, "/d/a", b"x");
    disk.symlink("/d", "/link").unwrap();
    disk.symlink("a", "/d/near").unwrap();
    disk.symlink("/nowhere", "/dangling").unwrap();
    disk.symlink("/loop", "/loop").unwrap();
    assert_eq!(disk.stat(Path::new("/link/near")).unwrap(), disk.stat(Path::new("/d/a")).unwrap());
    assert!(disk.is_link(Path::new("/link")).unwrap() && !disk.is_link(Path::new("/link/a")).unwrap());
    let entries = disk.read_dir(Path::new("/")).unwrap();
    assert!(entries.iter().any(|entry| entry.name == "link" && !entry.is_dir));
    assert_eq!(kind(disk.stat(Path::new("/dangling"))), io::ErrorKind::NotFound);
    let refused = disk.open(Path::new("/dangling"), Access::CreateNew).map(drop);
    assert_eq!(kind(refused), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.stat(Path::new("/loop")).unwrap_err().raw_os_error(), Some(40));
    disk.rename(Path::new("/d/near"), Path::new("/d/far")).unwrap();
    assert!(disk.is_link(Path::new("/d/far")).unwrap(), "the link was renamed, not what it leads to");
    disk.remove_file(Path::new("/d/far")).unwrap();
    disk.stat(Path::new("/d/a")).unwrap();
    disk.power_cut(Crash::LoseAll);
    assert!(disk.is_link(Path::new("/link")).unwrap());
}

#[test]
fn nothing_is_made_private_through_a_link() {
    let disk = SimDisk::new();
    for dir in ["/data", "/outside"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    create(&disk, "/outside/a", b"x");
    create(&disk, "/data/own", b"x");
    disk.symlink("/outside/a", "/data/a").unwrap();
    disk.symlink("/outside", "/data/dir").unwrap();
    disk.symlink("/data", "/by_link").unwrap();
    for path in ["/outside/a", "/data/own", "/data"] {
        disk.set_mode(path, 0o755).unwrap();
    }
    let private = |root: &str, path: &str| disk.make_private(Path::new(root), Path::new(path));
    assert!(private("/data", "a").is_err() && private("/data", "dir/a").is_err() && private("/by_link", "").is_err());
    assert_eq!(disk.mode("/outside/a").unwrap(), 0o755);
    assert_eq!(private("/by_link", "own").unwrap(), 0o755, "the directory itself may be named by a link");
    assert_eq!(private("/data", "").unwrap(), 0o755);
    assert_eq!((disk.mode("/data/own").unwrap(), disk.mode("/data").unwrap()), (0o700, 0o700));
    disk.set_owner("/data/own", OTHER).unwrap();
    assert_eq!(kind(private("/data", "own")), io::ErrorKind::PermissionDenied);
}

#[test]
fn nothing_is_renamed_between_two_file_systems() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/other")).unwrap();
    disk.mount("/other").unwrap();
    create(&disk, "/a", b"x");
    create(&disk, "/other/b", b"x");
    let refused = disk.rename(Path::new("/a"), Path::new("/other/a"));
    assert_eq!(kind(refused), io::ErrorKind::CrossesDevices);
    assert_eq!(kind(disk.rename(Path::new("/other/b"), Path::new("/b"))), io::ErrorKind::CrossesDevices);
    disk.rename(Path::new("/other/b"), Path::new("/other/c")).unwrap();
    let [here, there] = ["/a", "/other/c"].map(|path| disk.stat(Path::new(path)).unwrap());
    assert_ne!(here.device, there.device);
}

#[test]
fn a_disk_of_a_certain_size_tells_what_is_free_and_a_closed_file_without_a_name_frees_it() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(10));
    let free = || disk.free_bytes(Path::new("/")).unwrap();
    let file = create(&disk, "/a", b"12345678");
    assert_eq!(free(), Some(2));
    assert_eq!(file.write_at(b"abcd", 8).unwrap(), 2, "as much as there is room for");
    assert_eq!(kind(file.write_at(b"cd", 10)), io::ErrorKind::StorageFull);
    assert_eq!(file.write_at(b"xy", 0).unwrap(), 2, "what is there can be overwritten");
    assert_eq!(kind(file.set_len(11)), io::ErrorKind::StorageFull);
    file.set_len(9).unwrap();
    file.set_len(10).unwrap();
    disk.remove_file(Path::new("/a")).unwrap();
    assert_eq!(free(), Some(0), "it is open");
    drop(file);
    assert_eq!(free(), Some(10));
    disk.set_capacity(None);
    assert_eq!(free(), None);
}

#[test]
fn on_copy_on_write_a_full_disk_has_no_room_for_bytes_in_the_place_of_others() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", b"1234");
    disk.copy_on_write(true);
    file.write_at(b"x", 0).unwrap();
    disk.fill(disk.operations() + 1);
    assert_eq!(kind(file.write_at(b"y", 0)), io::ErrorKind::StorageFull);
    assert_eq!(kind(file.write_at(b"yz", 3)), io::ErrorKind::StorageFull);
    disk.make_room();
    file.write_at(b"y", 0).unwrap();
}

#[test]
fn space_that_is_allocated_late_is_missed_by_the_sync_which_forgets() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", b"");
    disk.sync_dir(Path::new("/")).unwrap();
    disk.fill_at_sync(disk.operations() + 1);
    file.write_at(b"lost", 0).unwrap();
    assert_eq!(kind(file.sync()), io::ErrorKind::StorageFull);
    disk.make_room();
    file.sync().unwrap();
    disk.power_cut(Crash::KeepAll);
    assert_eq!(disk.files()[Path::new("/a")], b"");
}

#[test]
fn a_partial_sync_fails_and_some_pages_are_on_the_medium() {
    let after = |seed| {
        let disk = SimDisk::new().with_page_bytes(2);
        let file = create(&disk, "/a", b"........");
        file.sync().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.write_at(b"aabbccdd", 0).unwrap();
        disk.fail(disk.operations() + 1, Fault::PartialSync(seed));
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        assert!(file.sync().is_ok(), "a later one proves nothing");
        disk.power_cut(Crash::KeepAll);
        String::from_utf8(disk.files()[Path::new("/a")].clone()).unwrap()
    };
    let all: std::collections::BTreeSet<String> = (0..64).map(after).collect();
    assert!(all.len() > 10, "{all:?}");
    assert!(all.contains("........") && all.contains("aabbccdd"), "{all:?}");
    let is_paged = |text: &String| text.as_bytes().chunks(2).all(|page| page[0] == page[1]);
    assert!(all.iter().all(is_paged), "{all:?}");
}

#[test]
fn numbers_of_files_that_are_gone_for_good_are_used_again_if_asked() {
    let number = |disk: &SimDisk, path: &str| disk.stat(Path::new(path)).unwrap().inode;
    for reuses in [false, true] {
        let disk = if reuses { SimDisk::new().with_inode_reuse() } else { SimDisk::new() };
        drop(create(&disk, "/a", b"x"));
        let first = number(&disk, "/a");
        disk.break_reads("/a").unwrap();
        disk.remove_file(Path::new("/a")).unwrap();
        create(&disk, "/b", b"x");
        assert_ne!(number(&disk, "/b"), first, "it may come back after a crash");
        disk.sync_dir(Path::new("/")).unwrap();
        let file = create(&disk, "/c", b"y");
        assert_eq!(number(&disk, "/c") == first, reuses);
        assert_eq!(file.read_at(&mut [0], 0).unwrap(), 1, "a new file can be read");
    }
}

#[test]
fn coarse_clocks_and_times_show_several_changes_as_one() {
    let modified = |disk: &SimDisk| disk.stat(Path::new("/a")).unwrap().modified_nanos;
    let disk = SimDisk::new().with_coarse_clock(1_000_000);
    let file = create(&disk, "/a", b"x");
    let first = modified(&disk);
    file.write_at(b"y", 0).unwrap();
    assert_eq!(modified(&disk), first);
    file.set_modified(5_000_001).unwrap();
    assert_eq!(modified(&disk), 5_000_001, "a time that is set is kept as it is");
    let disk = SimDisk::new().with_coarse_times(1_000);
    let file = create(&disk, "/a", b"x");
    file.set_modified(5_999).unwrap();
    assert_eq!(modified(&disk), 5_000);
}

#[test]
fn a_modification_time_is_durable_with_the_file() {
    let disk = SimDisk::new();
    let file = create(&disk, "/a", b"x");
    file.set_modified(700).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file.set_modified(900).unwrap();
    disk.power_cut(Crash::LoseAll);
    assert_eq!(disk.stat(Path::new("/a")).unwrap().modified_nanos, 700);
}

#[test]
fn an_empty_directory_can_be_removed_and_a_removal_that_was_not_synced_may_come_back() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    create(&disk, "/d/a", b"");
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(kind(disk.remove_dir(Path::new("/d"))), io::ErrorKind::DirectoryNotEmpty);
    disk.remove_file(Path::new("/d/a")).unwrap();
    disk.remove_dir(Path::new("/d")).unwrap();
    assert!(disk.stat(Path::new("/d")).is_err());
    disk.power_cut(Crash::LoseAll);
    disk.stat(Path::new("/d")).unwrap();
}

#[test]
fn a_machine_without_a_boot_id_does_not_tell_its_boots_apart() {
    let disk = SimDisk::new().without_boot_id();
    let before = disk.boot_id();
    disk.reboot();
    assert_eq!((before.as_str(), disk.boot_id().as_str()), ("", ""));
}

#[test]
fn looks_are_counted_and_are_no_operations() {
    let disk = SimDisk::new();
    create(&disk, "/a", b"x");
    let (operations, looks) = (disk.operations(), disk.looks());
    disk.stat(Path::new("/a")).unwrap();
    disk.open(Path::new("/a"), Access::Read).unwrap();
    disk.read_dir(Path::new("/")).unwrap();
    assert_eq!((disk.operations(), disk.looks()), (operations, looks + 3));
}
