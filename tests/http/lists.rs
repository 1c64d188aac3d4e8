//! The stream of the list: who follows it misses no change, or is told to load the list.

use serde_json::json;

use crate::house::House;
use crate::wire::{Coming, ask};

fn next(coming: &mut Coming) -> (String, String) {
    let event = coming.event().unwrap();
    let session = event.json()["session_id"].as_str().unwrap_or_default().to_owned();
    (event.name, session)
}

fn of(name: &str, session: &str) -> (String, String) {
    (name.to_owned(), session.to_owned())
}

#[test]
fn changes_and_deletions_are_told_with_what_the_list_shows() {
    let house = House::new();
    let mut coming = ask("GET", "/v1/events").open(house.address);
    assert_eq!(next(&mut coming), of("snapshot", ""));
    house.session("a");
    let event = coming.event().unwrap();
    let listed = house.get("/v1/sessions").json()["sessions"][0].clone();
    assert_eq!((event.name.as_str(), event.json()), ("changed", listed));
    house.send(&ask("PATCH", "/v1/sessions/a").header("if-match", "*").json(json!({ "title": "b" }))).expect(200);
    assert_eq!(coming.event().unwrap().json()["title"], "b");
    house.send(&ask("DELETE", "/v1/sessions/a")).expect(204);
    let gone = coming.event().unwrap();
    assert_eq!((gone.name.as_str(), gone.json()), ("deleted", json!({ "session_id": "a" })));
    // Whoever comes back gets the rest.
    let resume = |id: &str| ask("GET", "/v1/events").header("last-event-id", id).open(house.address);
    house.session("b");
    assert_eq!(next(&mut resume(&gone.id.clone().unwrap())), of("changed", "b"));
    let mut earlier = resume(&event.id.unwrap());
    assert_eq!(
        [next(&mut earlier), next(&mut earlier), next(&mut earlier)],
        [of("changed", "a"), of("deleted", "a"), of("changed", "b")]
    );
    for lost in ["x", "00000000-1", "-1", ""] {
        assert_eq!(next(&mut resume(lost)), of("snapshot", ""), "{lost}");
    }
    // A number that was not given yet is no place either.
    let era = gone.id.unwrap();
    assert_eq!(next(&mut resume(&format!("{era}99"))), of("snapshot", ""));
}

#[test]
fn whoever_was_away_for_too_long_loads_the_list() {
    let house = House::new();
    let mut coming = ask("GET", "/v1/events").open(house.address);
    coming.event().unwrap();
    house.session("first");
    let first = coming.event().unwrap().id.unwrap();
    drop(coming);
    for nth in 0..1_100 {
        house.store.create(lastword::NewSession::titled(&nth.to_string())).unwrap();
    }
    let mut late = ask("GET", "/v1/events").header("last-event-id", &first).open(house.address);
    assert_eq!(late.event().unwrap().name, "snapshot");
    house.session("last");
    assert_eq!(next(&mut late), of("changed", "last"));
}
