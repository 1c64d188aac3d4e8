//! The simulated disk against its own fault model.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::storage::disk::{Access, Disk, DiskFile};

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
    assert!(!disk.has_stopped(), "not before the operation");
    assert!(file.write_at(b"y", 1).is_err() && disk.stat(Path::new("/a")).is_err());
    assert!(disk.has_stopped());
    disk.kill();
    assert!(!disk.has_stopped());
    assert!(file.write_at(b"y", 1).is_err(), "a file of a dead program");
    assert_eq!(read(&disk, "/a").unwrap(), b"x");
    assert_eq!(disk.boot_id(), boot);
    let again = disk.lock(Path::new("/lock")).unwrap();
    drop(lock);
    assert!(disk.lock(Path::new("/lock")).is_err(), "a dead program's lock lets go of nothing");
    drop(again);
    assert!(disk.lock(Path::new("/lock")).is_ok());
}

/// A busy life: files of several pages, some synced, renames and removals, bit rot, faults, a crash, and more of it.
fn busy_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new().with_page_bytes(16);
    disk.hide("/3", 2);
    disk.fail(9, Fault::ShortWrite(5));
    for number in 0..8 {
        let file = write(&disk, &format!("/{number}"), &[number; 32]);
        if number % 3 == 0 {
            file.sync().unwrap();
        }
        file.write_at(&[number + 100; 90], 20).unwrap();
    }
    disk.rename(Path::new("/2"), Path::new("/5")).unwrap();
    disk.remove_file(Path::new("/4")).unwrap();
    disk.rot_any(seed);
    disk.power_cut(Crash::Seeded(seed));
    write(&disk, "/after", b"more");
    disk.power_cut(Crash::Seeded(seed + 1));
    disk
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let run = |seed| {
        let disk = busy_disk(seed);
        let image = format!("{:?}", disk.machine.lock().image);
        (disk.log(), disk.files(), image)
    };
    for seed in 0..50 {
        assert_eq!(run(seed), run(seed));
    }
    assert!((0..20).any(|seed| run(seed).1 != run(50).1), "seeds make no difference");
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

/// A file of four pages of 4 bytes, the first of them synced, after a power cut.
fn paged(crash: Crash, change: impl FnOnce(&dyn DiskFile)) -> Vec<u8> {
    let disk = SimDisk::new().with_page_bytes(4);
    let file = write(&disk, "/a", b"aaaa");
    file.sync().unwrap();
    sync_root(&disk);
    change(&*file);
    disk.power_cut(crash);
    read(&disk, "/a").unwrap()
}

fn append_three_pages(file: &dyn DiskFile) {
    for (at, byte) in [(4, b'b'), (8, b'c'), (12, b'd')] {
        file.write_at(&[byte; 4], at).unwrap();
    }
}

#[test]
fn a_page_that_did_not_arrive_is_zero_before_good_ones() {
    assert_eq!(paged(Crash::PagesOnly(0), append_three_pages), b"aaaa\0\0\0\0ccccdddd");
}

#[test]
fn a_page_that_did_not_arrive_keeps_what_was_synced_in_it() {
    let after = paged(Crash::PagesOnly(0), |file| drop(file.write_at(b"BBBBBBB", 1)));
    assert_eq!(after, b"aaaaBBBB", "written over");
    let after = paged(Crash::PagesOnly(0), |file| {
        file.set_len(2).unwrap();
        file.write_at(b"bbbb", 2).unwrap();
    });
    assert_eq!(after, b"aaaabb", "cut and written again");
    let after = paged(Crash::PagesOnly(0), |file| file.set_len(0).and(file.set_len(3)).unwrap());
    assert_eq!(after, b"aaa", "cut and made longer again");
    let after = paged(Crash::PagesOnly(0), |file| file.set_len(0).unwrap());
    assert_eq!(after, b"", "only cut");
}

#[test]
fn pages_that_were_cut_off_again_do_not_come_back() {
    let append_and_cut = |file: &dyn DiskFile| {
        append_three_pages(file);
        file.set_len(6).unwrap();
    };
    let lens: BTreeSet<usize> = (0..400).map(|seed| paged(Crash::Seeded(seed), append_and_cut).len()).collect();
    assert!(lens.contains(&6) && lens.contains(&4) && lens.contains(&16), "{lens:?}");
    assert_eq!(paged(Crash::PagesOnly(0), append_and_cut), b"aaaa\0\0");
}

#[test]
fn by_seed_every_page_is_there_or_not_by_itself() {
    let seen: BTreeSet<String> = (0..400)
        .map(|seed| paged(Crash::Seeded(seed), append_three_pages))
        .map(|bytes| String::from_utf8(bytes).unwrap().replace('\0', "."))
        .collect();
    for bits in 0..8 {
        let page = |bit: usize, text| if bits >> bit & 1 == 1 { text } else { "...." };
        let pages = format!("aaaa{}{}{}", page(0, "bbbb"), page(1, "cccc"), page(2, "dddd"));
        assert!(seen.contains(&pages), "{pages} is not among {seen:?}");
    }
}

#[test]
fn by_seed_a_page_is_written_out_at_any_moment_and_its_writes_keep_their_order() {
    let write_thrice = |file: &dyn DiskFile| {
        file.write_at(b"1", 0).unwrap();
        file.write_at(b"zzzz", 4).unwrap();
        file.write_at(b"2", 1).unwrap();
        file.write_at(b"3", 2).unwrap();
    };
    let seen: BTreeSet<String> = (0..400)
        .map(|seed| paged(Crash::Seeded(seed), write_thrice))
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .collect();
    for early in ["aaaazzzz", "1aaa\0\0\0\0", "12aa\0\0\0\0", "123a\0\0\0\0", "123azzzz"] {
        assert!(seen.contains(early), "{early:?} is not among {seen:?}");
    }
    let first_pages = ["aaaa", "1aaa", "12aa", "123a"];
    assert!(seen.iter().all(|bytes| first_pages.contains(&&bytes[..4])), "{seen:?}");
}

#[test]
fn pages_are_of_4096_bytes_unless_said_otherwise() {
    let disk = SimDisk::new();
    let file = write(&disk, "/a", &[b'x'; 4097]);
    sync_root(&disk);
    disk.power_cut(Crash::PagesOnly(0));
    drop(file);
    let bytes = read(&disk, "/a").unwrap();
    assert_eq!(bytes.iter().position(|byte| *byte != 0), Some(4096));
}

/// What stands in three files and whether a fourth has its name, after a power cut.
fn four_places(crash: Crash) -> String {
    let disk = SimDisk::new();
    let files: Vec<_> = ["/a", "/b", "/c"].iter().map(|path| write(&disk, path, b"")).collect();
    sync_root(&disk);
    files.iter().for_each(|file| drop(file.write_at(b"1234", 0)));
    write(&disk, "/d", b"").sync().unwrap();
    assert_eq!(disk.places(), Places { files: 3, names: 1 });
    disk.power_cut(crash);
    let texts = disk.files().into_values().map(|bytes| String::from_utf8(bytes).unwrap().replace('\0', "."));
    texts.collect::<Vec<_>>().join("|")
}

#[test]
fn one_place_and_two_places_have_the_fate_that_was_chosen() {
    let one = |place, fate, others| four_places(Crash::One { place, fate, others });
    let two = |first, second, others| four_places(Crash::Two { first, second, others });
    assert_eq!(one(1, Fate::Torn, Fate::Kept), "1234|12|1234|");
    assert_eq!(one(1, Fate::Torn, Fate::Lost), "|12|");
    assert_eq!(one(3, Fate::Lost, Fate::Kept), "1234|1234|1234");
    assert_eq!(one(3, Fate::Kept, Fate::Lost), "|||");
    assert_eq!(one(3, Fate::Zeroed, Fate::Lost), "|||", "a name has no zeroes");
    assert_eq!(two((0, Fate::Zeroed), (2, Fate::Lost), Fate::Kept), "....|1234||");
    assert_eq!(two((2, Fate::Kept), (3, Fate::Kept), Fate::Lost), "||1234|");
    assert_eq!(two((0, Fate::Pages), (1, Fate::Torn), Fate::Lost), "....|12|");
}

#[test]
fn the_old_words_say_the_same_as_one_place() {
    let one = |place, fate, others| four_places(Crash::One { place, fate, others });
    for place in 0..4 {
        assert_eq!(four_places(Crash::LoseOnly(place)), one(place, Fate::Lost, Fate::Kept));
        assert_eq!(four_places(Crash::KeepOnly(place)), one(place, Fate::Kept, Fate::Lost));
        assert_eq!(four_places(Crash::TearOnly(place)), one(place, Fate::Torn, Fate::Kept));
        assert_eq!(four_places(Crash::ZeroOnly(place)), one(place, Fate::Zeroed, Fate::Kept));
        assert_eq!(four_places(Crash::PagesOnly(place)), one(place, Fate::Pages, Fate::Kept));
    }
}

#[test]
fn the_choices_are_listed_singles_first_then_pairs_then_seeds() {
    let places = Places { files: 2, names: 1 };
    let singles: Vec<_> = Crash::singles(places).collect();
    let pairs: Vec<_> = Crash::pairs(places).collect();
    assert_eq!(singles.len(), 2 * (4 + 4 + 1));
    assert_eq!(pairs.len(), 2 * (4 * 4 + 4 + 4));
    let all: Vec<_> = Crash::enumerate(places, 100).collect();
    let expected = [Crash::LoseAll, Crash::KeepAll].into_iter().chain(singles).chain(pairs);
    assert_eq!(all, expected.chain((0..32).map(Crash::Seeded)).collect::<Vec<_>>());
    assert_eq!(Crash::enumerate(places, 5).collect::<Vec<_>>(), all[..5]);
    assert_eq!(Crash::enumerate(Places::default(), 5).collect::<Vec<_>>(), [Crash::LoseAll]);
}

#[test]
fn the_choices_for_two_places_leave_out_no_pair_of_fates() {
    const FATES: [Fate; 5] = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Zeroed, Fate::Pages];
    let disk = SimDisk::new();
    let files: Vec<_> = ["/a", "/b"].iter().map(|path| write(&disk, path, b"oooooooo")).collect();
    files.iter().for_each(|file| file.sync().unwrap());
    sync_root(&disk);
    files.iter().for_each(|file| drop(file.write_at(b"nnnnnnnn", 4)));
    let after = |crash| {
        let disk = disk.copy();
        disk.power_cut(crash);
        disk.files()
    };
    let listed: Vec<_> = disk.crashes(2 + 16 + 16).map(after).collect();
    for first in FATES {
        for second in FATES {
            let wanted = after(Crash::Two { first: (0, first), second: (1, second), others: Fate::Kept });
            assert!(listed.contains(&wanted), "{first:?} and {second:?}");
        }
    }
}

#[test]
fn nothing_rots_unless_asked_and_then_in_every_copy() {
    for crash in [Crash::LoseAll, Crash::KeepAll] {
        let disk = SimDisk::new();
        let file = write(&disk, "/a", b"synced");
        file.sync().unwrap();
        sync_root(&disk);
        file.write_at(b"not yet", 4).unwrap();
        disk.rot("/a", 0, 0).unwrap();
        disk.rot("/a", 5, 7).unwrap();
        let rotten = read(&disk, "/a").unwrap();
        assert_eq!(rotten, b"ryncn\xeft yet");
        let durable = b"rynce\xe4";
        disk.power_cut(crash);
        assert_eq!(read(&disk, "/a").unwrap(), if crash == Crash::LoseAll { &durable[..] } else { &rotten[..] });
    }
}

#[test]
fn rot_needs_a_byte_and_a_bit_that_are_there() {
    let disk = SimDisk::new();
    assert_eq!(disk.rot_any(1), None);
    write(&disk, "/a", b"xy");
    assert_eq!(disk.rot("/b", 0, 0).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(disk.rot("/a", 2, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(disk.rot("/a", 0, 8).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(read(&disk, "/a").unwrap(), b"xy");
}

#[test]
fn rot_by_seed_says_which_bit_it_was_and_reaches_them_all() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    write(&disk, "/a", &[0]);
    write(&disk, "/d/b", &[0]);
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let (path, byte, bit) = disk.rot_any(seed).unwrap();
        assert_eq!(disk.files()[&path], [1 << bit]);
        disk.rot(&path, byte, bit).unwrap();
        assert_eq!(disk.files()[&path], [0], "flipped twice");
        seen.insert((path, bit));
    }
    assert_eq!(seen.len(), 16);
}

#[test]
fn a_hidden_file_appears_after_so_many_looks_of_any_kind() {
    let disk = SimDisk::new();
    write(&disk, "/a", b"x").sync().unwrap();
    sync_root(&disk);
    disk.hide("/a", 3);
    disk.power_cut(Crash::LoseAll);
    assert_eq!(disk.files().len(), 1, "this is no look");
    assert_eq!(disk.stat(Path::new("/a")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(disk.open(Path::new("/a"), Access::Write).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(disk.read_dir(Path::new("/")).unwrap().is_empty());
    assert_eq!(disk.read_dir(Path::new("/")).unwrap().len(), 1);
    assert_eq!(read(&disk, "/a").unwrap(), b"x");
}

#[test]
fn a_hidden_file_is_met_by_whoever_creates_locks_renames_or_removes() {
    let disk = SimDisk::new();
    let open = write(&disk, "/a", b"x");
    disk.hide("/a", 1);
    assert_eq!(disk.open(Path::new("/a"), Access::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.lock(Path::new("/a")).unwrap().file().stat().unwrap().len, 1);
    assert!(open.write_at(b"y", 1).is_ok());
    disk.rename(Path::new("/a"), Path::new("/b")).unwrap();
    disk.rename(Path::new("/b"), Path::new("/a")).unwrap();
    disk.remove_file(Path::new("/a")).unwrap();
    write(&disk, "/a", b"new");
    assert_eq!(read(&disk, "/a"), None, "the look that was left");
    assert_eq!(read(&disk, "/a").unwrap(), b"new");
}

#[test]
fn what_is_below_a_hidden_folder_hides_and_hiding_can_be_ended() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    write(&disk, "/d/a", b"x");
    write(&disk, "/da", b"y");
    disk.hide("/d", 2);
    assert_eq!(read(&disk, "/d/a"), None);
    assert_eq!(read(&disk, "/da").unwrap(), b"y", "a name that only begins alike");
    assert_eq!(disk.read_dir(Path::new("/d")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(read(&disk, "/d/a").unwrap(), b"x");
    disk.hide("/d/a", 100);
    assert_eq!(read(&disk, "/d/a"), None);
    disk.hide("d/a", 0);
    assert_eq!(read(&disk, "/d/a").unwrap(), b"x");
}

#[test]
fn a_full_disk_refuses_what_takes_space_until_there_is_room() {
    let disk = SimDisk::new();
    let file = write(&disk, "/a", b"abcd");
    let is_full = |result: io::Result<()>| result.is_err_and(|cause| cause.kind() == io::ErrorKind::StorageFull);
    disk.fill(disk.operations() + 2);
    assert_eq!(file.write_at(b"e", 4).unwrap(), 1, "not full yet");
    for _ in 0..2 {
        assert!(is_full(file.write_at(b"f", 5).map(drop)) && is_full(file.set_len(6)));
        assert!(is_full(disk.create_dir(Path::new("/d"))));
        assert!(is_full(disk.open(Path::new("/b"), Access::CreateNew).map(drop)));
    }
    assert_eq!(file.write_at(b"EFG", 4).unwrap(), 1, "up to the end of the file");
    assert_eq!(file.write_at(b"A", 0).unwrap(), 1);
    file.set_len(5).unwrap();
    file.sync().unwrap();
    disk.rename(Path::new("/a"), Path::new("/c")).unwrap();
    sync_root(&disk);
    disk.power_cut(Crash::LoseAll);
    assert!(is_full(disk.create_dir(Path::new("/d"))), "a power cut makes no room");
    disk.make_room();
    disk.create_dir(Path::new("/d")).unwrap();
    assert_eq!(read(&disk, "/c").unwrap(), b"AbcdE");
}

#[test]
fn a_device_that_no_longer_syncs_forgets_each_time() {
    let disk = SimDisk::new();
    let file = write(&disk, "/a", b"one");
    disk.break_syncs(disk.operations() + 2);
    file.sync().unwrap();
    assert!(disk.sync_dir(Path::new("/")).is_err());
    file.write_at(b"two", 3).unwrap();
    assert!(file.sync().is_err() && file.sync().is_err());
    disk.kill();
    assert!(disk.sync_dir(Path::new("/")).is_err(), "a kill mends nothing");
    disk.mend_syncs();
    sync_root(&disk);
    assert_eq!(read(&disk, "/a").unwrap(), b"onetwo");
    disk.power_cut(Crash::KeepAll);
    assert_eq!(read(&disk, "/a").unwrap(), b"one");
}

#[test]
fn what_cannot_be_read_says_so_under_any_name_until_it_can() {
    let disk = SimDisk::new();
    write(&disk, "/a", b"x");
    disk.break_reads("/a").unwrap();
    disk.rename(Path::new("/a"), Path::new("/b")).unwrap();
    write(&disk, "/a", b"y");
    let file = disk.open(Path::new("/b"), Access::Read).unwrap();
    assert_eq!(file.read_at(&mut [0], 0).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(file.stat().unwrap().len, 1);
    assert_eq!(read(&disk, "/a").unwrap(), b"y");
    disk.mend_reads("/b").unwrap();
    assert_eq!(read(&disk, "/b").unwrap(), b"x");
    disk.break_reads("/").unwrap();
    assert_eq!(disk.read_dir(Path::new("/")).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(disk.break_reads("/c").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_power_cut_and_a_reboot_change_the_boot_id_and_a_kill_does_not() {
    let disk = SimDisk::new();
    let boot = |end: &dyn Fn()| {
        let before = disk.boot_id();
        end();
        before != disk.boot_id()
    };
    assert!(!boot(&|| disk.kill()));
    assert!(boot(&|| disk.power_cut(Crash::KeepAll)));
    assert!(boot(&|| disk.reboot()));
    assert_eq!(disk.boot_id(), "simulated-boot-3", "each boot has its own");
}

#[test]
fn a_reboot_keeps_everything_but_what_a_failed_sync_forgot() {
    let disk = SimDisk::new();
    let lock = disk.lock(Path::new("/lock")).unwrap();
    let file = write(&disk, "/a", b"lost");
    disk.fail(disk.operations() + 1, Fault::Eio);
    assert!(file.sync().is_err());
    file.write_at(b"kept", 4).unwrap();
    disk.reboot();
    assert_eq!(disk.unsynced(), 0);
    assert!(file.write_at(b"y", 0).is_err(), "its program is dead");
    assert!(disk.lock(Path::new("/lock")).is_ok(), "so is the one that held this");
    drop(lock);
    disk.power_cut(Crash::LoseAll);
    assert_eq!(read(&disk, "/a").unwrap(), b"\0\0\0\0kept");
}

#[test]
fn a_copy_goes_its_own_way() {
    let disk = SimDisk::new();
    let _lock = disk.lock(Path::new("/lock")).unwrap();
    assert!(disk.copy().lock(Path::new("/lock")).is_ok(), "who holds the first does not hold the copy");
    let file = write(&disk, "/a", b"x");
    disk.stop_before(disk.operations() + 1);
    assert!(file.sync().is_err());
    let copy = disk.copy();
    assert!(copy.stat(Path::new("/a")).is_err(), "it has stopped too");
    copy.power_cut(Crash::LoseAll);
    assert!(copy.files().is_empty());
    disk.kill();
    assert_eq!(read(&disk, "/a").unwrap(), b"x");
}
