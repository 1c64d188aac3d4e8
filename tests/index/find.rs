//! Pages of those sessions that are wanted: together the list without the others, at a bounded cost each.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use lastword::clock::SystemClock;
use lastword::index::{Entry, Index, ListFilter, Part};
use lastword::limits::LIST_SCAN_MAX;
use lastword::model::SessionState;
use lastword::storage::{FileStorage, FilesOptions, Mode, OsDisk};
use lastword::{Listed, NewSession, Position, SaveOptions, Store};
use proptest::prelude::*;

use crate::seeds;
use crate::shelf::{Shelf, ids, rename, shown, sid};

fn titled(title: &str) -> ListFilter {
    ListFilter { title: Some(title.to_owned()), archived: None }
}

fn archived(archived: bool) -> ListFilter {
    ListFilter { title: None, archived: Some(archived) }
}

/// The rule, told once more and plainly.
fn is_wanted(entry: &Listed, filter: &ListFilter) -> bool {
    let Ok(summary) = &entry.summary else { return filter.title.is_none() && filter.archived != Some(true) };
    let is_archived =
        summary.get("archived").is_some_and(|raw| !["null", "false", "0", "\"\""].contains(&raw.as_str()));
    let has_title = |wanted: &String| summary.title().to_lowercase().contains(&wanted.to_lowercase());
    filter.title.as_ref().is_none_or(has_title) && filter.archived.is_none_or(|wanted| wanted == is_archived)
}

fn wanted(store: &Store, filter: &ListFilter) -> Vec<String> {
    let mut listed = store.list().unwrap();
    listed.retain(|entry| is_wanted(entry, filter));
    shown(&listed)
}

/// Follows the pages to the end of the list.
fn by_pages(store: &Store, limit: usize, filter: &ListFilter) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None::<Position>);
    loop {
        let page = store.find_page(after.as_ref(), limit, filter).unwrap();
        assert!(page.sessions.len() <= limit);
        all.extend(shown(&page.sessions));
        let Some(next) = page.next else { return all };
        assert!(after.is_none_or(|after| next > after), "it goes on");
        // As a text, the way a client holds it.
        after = Some(next.to_string().parse().unwrap());
    }
}

fn write_session(root: &Path, id: &str, title: &str, archived: &str, updated_at: usize) {
    let title = serde_json::to_string(title).unwrap();
    let text = format!(
        r#"{{"session_id":"{id}","title":{title},"updated_at":{updated_at},"archived":{archived},"message_count":0,"messages":[]}}"#
    );
    fs::write(root.join(format!("{id}.json")), text).unwrap();
}

const TITLES: [&str; 10] = [
    "Plan a trip",
    "plan B",
    "ÜBER das Meer",
    "Das Überbuch",
    "Ещё один план",
    "日本語の話",
    "say \"archived\":true",
    "back\\slash \"title\":\"x\"",
    "",
    "🦀 Crab PLAN 🦀",
];

/// Sessions with all of these titles, archived and not, in no order, and some that cannot be read.
fn mixed() -> &'static Shelf {
    static SHELF: OnceLock<Shelf> = OnceLock::new();
    SHELF.get_or_init(|| {
        let shelf = Shelf::with(0);
        for at in 0..60 {
            let flag = ["null", "true", "false", "1", "0", "\"\"", "\"yes\""][at * 5 % 7];
            write_session(&shelf.root, &format!("s{at}"), TITLES[at * 7 % TITLES.len()], flag, at * 37 % 20);
        }
        ["bad-1", "bad-2", "bad-3"].iter().for_each(|bad| fs::write(shelf.path(&format!("{bad}.json")), b"{").unwrap());
        shelf
    })
}

fn index_of(shelf: &Shelf) -> Index {
    let options = FilesOptions { allow_network_fs: true, ..FilesOptions::in_mode(Mode::ReadOnly) };
    let storage = FileStorage::open(Arc::new(OsDisk), &shelf.root, options).unwrap();
    Index::new(Arc::new(storage), Arc::new(SystemClock))
}

fn any_filter() -> impl Strategy<Value = ListFilter> {
    let words = ["plan", "PLAN", "über", "Ü", "ПЛАН", "語", "\"", "\\", "true", "🦀", "x", "nothing like it", ""];
    let title = prop::option::of(prop::sample::select(words.map(str::to_owned).to_vec()));
    (title, prop::option::of(any::<bool>())).prop_map(|(title, archived)| ListFilter { title, archived })
}

proptest! {
    #![proptest_config(seeds::config("index"))]

    #[test]
    fn pages_of_any_size_give_all_that_is_wanted_once_and_in_order(filter in any_filter(), limit in 1usize..70) {
        let store = mixed().reader();
        prop_assert_eq!(by_pages(&store, limit, &filter), wanted(&store, &filter));
    }

    /// However few entries a page may look through, the pages go on to the end, and none looks at more.
    #[test]
    fn a_search_that_may_look_at_little_comes_to_the_same_in_the_end(
        filter in any_filter(), limit in 1usize..20, entries_max in 1usize..70,
    ) {
        let (shelf, index) = (mixed(), index_of(mixed()));
        let all: Vec<Position> = index.all().unwrap().iter().map(|entry| entry.position()).collect();
        let place = |position: &Position| all.iter().position(|known| known == position).unwrap() + 1;
        let (mut found, mut after) = (Vec::new(), None::<Position>);
        loop {
            let Part { entries, next } = index.find(after.as_ref(), limit, &filter, entries_max).unwrap();
            let from = after.as_ref().map_or(0, place);
            let to = next.as_ref().map_or(all.len(), place);
            prop_assert!(to - from <= entries_max && entries.len() <= limit);
            prop_assert!(next.is_none() || entries.len() == limit || to - from == entries_max, "it stopped for no reason");
            found.extend(entries.into_iter().map(listed));
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        prop_assert_eq!(shown(&found), wanted(&shelf.reader(), &filter));
    }
}

#[test]
fn without_a_wish_it_is_the_list() {
    let store = mixed().reader();
    for limit in [0, 1, 7, 62, 63, 64] {
        let (mut after, all) = (None, ListFilter::default());
        loop {
            let (plain, found) = (store.list_page(after.as_ref(), limit), store.find_page(after.as_ref(), limit, &all));
            let (plain, found) = (plain.unwrap(), found.unwrap());
            assert_eq!((shown(&plain.sessions), &plain.next), (shown(&found.sessions), &found.next));
            after = plain.next;
            if after.is_none() {
                break;
            }
        }
    }
    let nothing = store.find_page(None, 0, &titled("plan")).unwrap();
    assert!(nothing.sessions.is_empty() && nothing.next.is_none(), "a page of nothing");
}

#[test]
fn what_cannot_be_read_is_wanted_where_no_title_is_and_nothing_archived() {
    let shelf = Shelf::with(2);
    fs::write(shelf.path("bad.json"), b"{").unwrap();
    let store = shelf.writer();
    let found = |filter: &ListFilter| {
        let page = store.find_page(None, 9, filter).unwrap();
        ids(&page.sessions).join(" ")
    };
    assert_eq!(found(&archived(false)), "s0 s1 bad");
    assert_eq!(found(&archived(true)), "");
    assert_eq!(found(&titled("")), "s0 s1");
    assert_eq!(found(&ListFilter { title: Some("1".into()), archived: Some(false) }), "s1");
}

#[test]
fn a_change_by_this_process_is_found_at_once() {
    let shelf = Shelf::with(4);
    let store = shelf.writer();
    let found = |filter: &ListFilter| {
        let page = store.find_page(None, 9, filter).unwrap();
        ids(&page.sessions).join(" ")
    };
    assert_eq!((found(&titled("sEssion")), found(&archived(true))), ("s0 s1 s2 s3".into(), String::new()));
    shelf.clock.advance(Duration::from_secs(5));
    rename(&store, "s2", "Straße");
    let options = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
    store.update(&sid("s3"), options, |session| session.set("archived", "true")).unwrap();
    store.delete(&sid("s1")).unwrap();
    assert_eq!((found(&titled("session")), found(&titled("STRAßE"))), ("s0 s3".into(), "s2".into()));
    assert_eq!((found(&archived(true)), found(&archived(false))), ("s3".into(), "s2 s0".into()));
}

/// This process has just saved, so that the list is believed; only the sessions of the page are looked at.
#[test]
fn a_session_of_the_page_that_was_changed_outside_is_left_out_and_its_place_taken() {
    let shelf = Shelf::with(5);
    let store = shelf.writer();
    store.list_page(None, 1).unwrap();
    rename(&store, "s0", "Session zero");
    let before = store.find_page(None, 3, &titled("session")).unwrap();
    assert_eq!(ids(&before.sessions), ["s0", "s1", "s2"]);
    let path = shelf.path("s1.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("Session 1", "Another 1")).unwrap();
    let page = store.find_page(None, 3, &titled("session")).unwrap();
    assert_eq!(ids(&page.sessions), ["s0", "s2", "s3"]);
    let rest = store.find_page(page.next.as_ref(), 3, &titled("session")).unwrap();
    assert_eq!((ids(&rest.sessions), rest.next), (vec!["s4"], None));
    assert_eq!(ids(&store.find_page(None, 3, &titled("another")).unwrap().sessions), ["s1"]);
}

/// Each walk through the pages meets every session that nobody touches exactly once, whatever happens to the others.
#[test]
fn sessions_that_nobody_touches_are_found_once_while_others_come_and_go() {
    let shelf = Shelf::with(0);
    for at in 0..80 {
        let (name, title) = if at % 2 == 0 { ("calm", "Calm wanted") } else { ("busy", "Busy wanted") };
        write_session(&shelf.root, &format!("{name}{at}"), if at % 8 < 6 { title } else { "Other" }, "null", at);
    }
    let (store, is_over) = (shelf.writer(), AtomicBool::new(false));
    store.list().unwrap();
    thread::scope(|scope| {
        for worker in 0..2 {
            let (store, clock, is_over) = (&store, &shelf.clock, &is_over);
            scope.spawn(move || {
                for round in 0.. {
                    clock.advance(Duration::from_millis(300));
                    let busy = sid(&format!("busy{}", (round * 8 + worker * 2 + 1) % 80));
                    let title = if round % 3 == 0 { "Gone" } else { "Wanted again" };
                    store.update(&busy, SaveOptions::default(), |session| session.set_text("title", title)).unwrap();
                    let fresh = store.create(NewSession::titled("Wanted for a moment")).unwrap();
                    store.delete(&fresh).unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for limit in [1, 3, 7].into_iter().cycle().take(30) {
            let (mut seen, mut after) = (HashMap::<String, usize>::new(), None);
            loop {
                let page = store.find_page(after.as_ref(), limit, &titled("WANTED")).unwrap();
                page.sessions.iter().for_each(|entry| *seen.entry(entry.id.to_string()).or_default() += 1);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let calm: Vec<_> =
                (0..80).step_by(2).filter(|at| at % 8 < 6).map(|at| seen.get(&format!("calm{at}"))).collect();
            assert_eq!(calm, vec![Some(&1); 30], "pages of {limit}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(by_pages(&store, 7, &titled("wanted")), wanted(&store, &titled("wanted")));
}

#[test]
fn one_page_looks_through_so_many_sessions_and_no_more() {
    let shelf = Shelf::with(0);
    let sessions = LIST_SCAN_MAX + 50;
    for at in 0..sessions {
        let title = if at == 10 || at == 2_000 || at == LIST_SCAN_MAX + 20 { "Needle" } else { "Hay" };
        write_session(&shelf.root, &format!("s{at}"), title, "null", sessions - at);
    }
    let store = shelf.reader();
    let first = store.find_page(None, 10, &titled("needle")).unwrap();
    assert_eq!(ids(&first.sessions), ["s10", "s2000"]);
    let next = first.next.expect("there is more of the list");
    assert!(next.to_string().ends_with(&format!("-s{}", LIST_SCAN_MAX - 1)), "{next}");
    let second = store.find_page(Some(&next), 10, &titled("needle")).unwrap();
    assert_eq!((ids(&second.sessions), second.next), (vec![format!("s{}", LIST_SCAN_MAX + 20).as_str()], None));
    let none = store.find_page(None, 10, &titled("no needle")).unwrap();
    assert_eq!((none.sessions.len(), none.next), (0, Some(next)), "an empty page says where to go on");
    let one = store.find_page(None, 1, &titled("needle")).unwrap();
    assert_eq!((ids(&one.sessions), one.next.unwrap().to_string().ends_with("-s1999")), (vec!["s10"], true));
}

/// An entry of the index as a store lists it.
fn listed(entry: Entry) -> Listed {
    let summary = entry.summary.map_err(|unlisted| unlisted.error.into());
    Listed { id: entry.id, summary, state: SessionState::Idle }
}
