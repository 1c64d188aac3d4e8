//! The list page by page.

use std::sync::Arc;
use std::thread;

use lastword::{NewSession, Position, Store};

use crate::shelf::{Shelf, ids, rename, shown};

fn by_pages(store: &Store, limit: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None::<Position>);
    loop {
        let page = store.list_page(after.as_ref(), limit).unwrap();
        assert!(page.sessions.len() <= limit);
        all.extend(shown(&page.sessions));
        let Some(next) = page.next else { return all };
        // As a text, the way a client holds it.
        after = Some(next.to_string().parse().unwrap());
    }
}

#[test]
fn pages_of_any_size_give_the_whole_list() {
    let shelf = Shelf::with(10);
    std::fs::write(shelf.path("bad-1.json"), b"{").unwrap();
    std::fs::write(shelf.path("bad-2.json"), b"").unwrap();
    let store = shelf.writer();
    for limit in 1..14 {
        assert_eq!(by_pages(&store, limit), shelf.truth(), "pages of {limit}");
    }
}

#[test]
fn a_change_moves_a_session_to_the_top_and_no_other() {
    let shelf = Shelf::with(4);
    let store = shelf.writer();
    let first = store.list_page(None, 2).unwrap();
    assert_eq!(ids(&first.sessions), ["s0", "s1"]);
    shelf.clock.advance(std::time::Duration::from_secs(5));
    rename(&store, "s3", "Renamed");
    assert_eq!(ids(&store.list_page(None, 2).unwrap().sessions), ["s3", "s0"]);
    assert_eq!(ids(&store.list_page(first.next.as_ref(), 9).unwrap().sessions), ["s2"]);
}

#[test]
fn an_empty_store_has_one_empty_page() {
    let shelf = Shelf::with(0);
    let page = shelf.writer().list_page(None, 10).unwrap();
    assert!(page.sessions.is_empty() && page.next.is_none());
    assert!(!shelf.index().exists(), "there is nothing to write down");
}

#[test]
fn lists_that_are_taken_while_others_save_are_whole() {
    let shelf = Shelf::with(20);
    let store = Arc::new(shelf.writer());
    thread::scope(|scope| {
        for worker in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for at in 0..20 {
                    rename(store, &format!("s{}", (at * 7 + worker) % 20), &format!("{worker} {at}"));
                    store.create(NewSession::titled("more")).unwrap();
                }
            });
        }
        for _ in 0..40 {
            let listed = store.list_page(None, 1000).unwrap().sessions;
            assert!((0..20).all(|at| listed.iter().any(|entry| entry.id.as_str() == format!("s{at}"))));
        }
    });
    assert_eq!(by_pages(&store, 7).len(), 80);
    assert_eq!(shown(&store.list().unwrap()), shelf.truth());
}
