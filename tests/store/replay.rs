//! Replay of a session behind a cursor.

use lastword::{Cursor, Event, Outcome, ReplayStatus, RunId, UserTurn};

use crate::fixture::fixture;

#[test]
fn replay_goes_on_behind_a_cursor_and_names_what_is_wrong_with_it() {
    let fixture = fixture();
    for prompt in ["one", "two"] {
        let run = fixture
            .store
            .begin_run(&fixture.id, UserTurn::text(prompt).with_run(RunId::parse(prompt).unwrap()))
            .unwrap();
        run.append(Event::token(prompt)).unwrap();
        run.finish(Outcome::Completed).unwrap();
    }
    let replay = |cursor: &str| fixture.store.replay(&fixture.id, Some(&Cursor::parse(cursor))).unwrap();
    let ids = |cursor: &str| -> Vec<String> {
        let replay = replay(cursor);
        assert_eq!(replay.status, ReplayStatus::Ok, "{cursor}");
        replay.events.iter().map(|(run, event)| event.event_id(run)).collect()
    };
    assert_eq!(ids("one:0"), ["one:1", "one:2", "two:1", "two:2"]);
    assert_eq!(ids("one:2"), ["two:1", "two:2"]);
    assert_eq!(ids("two:2"), [""; 0]);
    for (cursor, status) in [
        ("", ReplayStatus::CursorInvalid),
        ("one:x", ReplayStatus::CursorInvalid),
        ("o/e:1", ReplayStatus::CursorInvalid),
        ("three:1", ReplayStatus::CursorRunMissing),
        ("one:9", ReplayStatus::CursorEventMissing),
    ] {
        assert_eq!(replay(cursor).status, status, "{cursor:?}");
    }
    assert_eq!(fixture.store.replay(&fixture.id, None).unwrap().events.len(), 4);
}

#[test]
fn replay_says_when_a_journal_is_damaged_foreign_too_long_or_has_gaps() {
    let fixture = fixture();
    let folder = fixture.folder.path().join("_run_journal").join(fixture.id.as_str());
    std::fs::create_dir_all(&folder).unwrap();
    let line = |session: &str, seq: u64, text: &str| {
        format!(
            "{{\"event_id\":\"r:{seq}\",\"seq\":{seq},\"run_id\":\"r\",\"session_id\":\"{session}\",\"event\":\"token\",\"payload\":\"{text}\"}}\n"
        )
    };
    let id = fixture.id.as_str();
    let long = "x".repeat(1024 * 1024);
    let status = |journal: String| {
        std::fs::write(folder.join("r.jsonl"), journal).unwrap();
        fixture.store.replay(&fixture.id, Some(&Cursor::parse("r:1"))).unwrap().status.as_str()
    };
    assert_eq!(status(line(id, 1, "") + &line(id, 2, "")), "ok");
    assert_eq!(status(line(id, 1, "") + "garbage\n" + &line(id, 2, "")), "replay_malformed");
    assert_eq!(status(line(id, 1, "") + &line(id, 3, "")), "replay_noncontiguous");
    assert_eq!(status(line("other", 1, "") + &line("other", 2, "")), "cursor_session_mismatch");
    assert_eq!(status((1..=6).map(|seq| line(id, seq, &long)).collect()), "replay_limit_bytes");
    assert_eq!(status((1..=5000).map(|seq| line(id, seq, "")).collect()), "replay_limit_rows");
    assert_eq!(status(line(id, 1, "") + &line(id, 2, "") + "{\"seq\":3"), "ok", "an unfinished line is no trouble");
}
