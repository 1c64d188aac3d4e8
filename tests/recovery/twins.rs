//! Things that look alike: equal prompts, equal rows, and rows of which only their text or their time is known.

use lastword::{Event, Outcome, UserTurn};
use serde_json::{Value, json};

use crate::scene::{BEGAN, OPENED, RUN, Scene, armed, assistant, contents, context, id, rows, user};

/// A row as the reference program recovers it: it says from which run, and not with which event it begins.
fn untagged(content: Value, at: i64) -> Value {
    json!({
        "role": "assistant", "content": content, "timestamp": at, "_recovered_from_run_journal": true,
        "_recovered_stream_id": RUN,
    })
}

#[test]
fn a_row_without_content_is_not_the_row_that_says_what_it_would_print() {
    for (nothing, printed) in [(json!(null), "None"), (json!([]), "[]"), (json!(0), "0")] {
        let scene = Scene::new();
        let empty = json!({"role": "assistant", "content": nothing, "timestamp": BEGAN});
        scene.pending(&[user("Where to?", BEGAN), empty], "Where to?");
        scene.journal(RUN, 1, &[("token", json!({"text": printed})), ("done", json!({}))]);
        assert_eq!(contents(&scene.open().get_session(&id()).unwrap()), ["Where to?", "", printed]);
    }
}

#[test]
fn a_row_without_content_is_the_row_of_a_tool_that_came_before_any_word() {
    for nothing in [json!(null), json!([]), json!(0), json!("")] {
        let scene = Scene::new();
        scene.pending(&[user("Where to?", BEGAN), untagged(nothing, 1)], "Where to?");
        scene.journal(RUN, 1, &[("tool", json!({"name": "map"})), ("done", json!({}))]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(contents(&session), ["Where to?", ""]);
        assert_eq!(session.tool_cards().next().unwrap().row_index(), Some(1));
    }
}

#[test]
fn a_row_of_the_context_is_replaced_only_if_it_says_that_it_is_the_same() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 0, OPENED), user("And?", 5), assistant("ok", 6)]);
    scene
        .edit(|stored| stored["context_messages"] = json!([user("Where to?", 1), user("And?", 5), assistant("ok", 6)]));
    let interim = |text: &str| ("interim_assistant", json!({"text": text}));
    scene.journal(RUN, 1, &[interim("ok"), ("token", json!({"text": "ok"}))]);
    let store = scene.open();
    assert_eq!(context(&store.get_session(&id()).unwrap()), ["Where to?", "ok", "ok", "And?", "ok"]);
    scene.journal(RUN, 3, &[("token", json!({"text": " then"}))]);
    drop(store);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "ok", "ok then", "And?", "ok"]);
    assert_eq!(context(&session), ["Where to?", "ok", "ok then", "And?", "ok"]);
}

#[test]
fn the_place_in_the_context_is_counted_among_equal_prompts_from_the_end() {
    let scene = Scene::new();
    let (second, third) = ([user("go on", 3), assistant("b", 4)], [user("go on", 5), assistant("c", 6)]);
    let behind = [second, third].concat();
    scene.session(&[&[user("go on", 1), armed(RUN, 0, OPENED)][..], &behind].concat());
    scene.edit(|stored| stored["context_messages"] = json!([&[user("go on", 1)][..], &behind].concat()));
    scene.journal(RUN, 1, &[("token", json!({"text": "a"}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(context(&session), ["go on", "a", "go on", "b", "go on", "c"]);
}

#[test]
fn a_recovered_row_that_lacks_words_is_known_by_its_time() {
    let scene = Scene::new();
    scene.pending(&[user("Where to?", BEGAN), untagged(json!("To sea."), BEGAN + 1)], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea."})), ("done", json!({}))]);
    assert_eq!(contents(&scene.open().get_session(&id()).unwrap()), ["Where to?", "To the sea."]);
}

#[test]
fn a_row_with_the_same_text_is_a_surer_sign_than_one_with_the_same_time() {
    let scene = Scene::new();
    scene.pending(&[user("Where to?", BEGAN), untagged(json!("To the sea."), BEGAN + 1)], "Where to?");
    let interim = |text: &str| ("interim_assistant", json!({"text": text}));
    scene.journal(RUN, 1, &[interim("Hm."), interim("To the sea."), ("done", json!({}))]);
    let mut said = contents(&scene.open().get_session(&id()).unwrap());
    said.sort();
    assert_eq!(said, ["Hm.", "To the sea.", "Where to?"], "each once");
}

#[test]
fn two_equal_texts_in_one_turn_are_both_kept_and_neither_is_repeated() {
    let interim = |text: &str| ("interim_assistant", json!({"text": text}));
    for known in 0..=2 {
        let scene = Scene::new();
        let mut transcript = vec![user("Where to?", BEGAN)];
        transcript.extend((0..known).map(|nth| untagged(json!("ok"), BEGAN + 1 + nth)));
        scene.pending(&transcript, "Where to?");
        scene.journal(RUN, 1, &[interim("ok"), interim("ok"), ("metering", json!({}))]);
        let store = scene.open();
        assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "ok", "ok"], "{known} were there");
        scene.journal(RUN, 4, &[interim("Bye.")]);
        assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "ok", "ok", "Bye."], "{known}");
    }
}

#[test]
fn a_prompt_that_was_stamped_a_little_early_or_not_at_all_is_the_pending_one() {
    let unstamped = json!({"role": "user", "content": "go on"});
    for (prompt, is_same) in [
        (user("go on", BEGAN - 2), true),
        (user("go on", BEGAN - 3), false),
        (user("go on", BEGAN + 5), true),
        (unstamped, true),
    ] {
        let scene = Scene::new();
        scene.pending(&[prompt.clone(), assistant("Hm.", BEGAN)], "go on");
        scene.journal(RUN, 1, &[("token", json!({"text": "Done."})), ("done", json!({}))]);
        let session = scene.open().get_session(&id()).unwrap();
        let expected = if is_same { vec!["go on", "Hm.", "Done."] } else { vec!["go on", "Hm.", "go on", "Done."] };
        assert_eq!(contents(&session), expected, "{prompt}");
        let mut first = rows(&session)[0].clone();
        first.as_object_mut().unwrap().remove("_run");
        assert_eq!(first, prompt, "beside the note of the run, what was there is not touched");
    }
}

#[test]
fn a_run_of_ours_has_its_own_prompt_even_where_an_equal_one_has_no_time() {
    let scene = Scene::new();
    let untimed = |role: &str, text: &str| json!({"role": role, "content": text});
    scene.session(&[untimed("user", "go on"), untimed("assistant", "Done.")]);
    let store = scene.open();
    let run = store.begin_run(&id(), UserTurn::text("go on")).unwrap();
    run.append(Event::token("Done.")).unwrap();
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["go on", "Done.", "go on", "Done."]);
}

/// The same row as it comes from another run.
fn of_run(mut row: Value, run: &str) -> Value {
    row["_recovered_stream_id"] = json!(run);
    row
}

#[test]
fn a_row_of_another_run_in_the_same_turn_is_not_a_row_of_this_one() {
    let twin = || untagged(json!("To the sea, and to no other place."), BEGAN + 1);
    for (run, is_twin) in [(RUN, true), ("other", false)] {
        for numbered in [true, false] {
            let scene = Scene::new();
            let mut twin = of_run(twin(), run);
            if numbered {
                twin["_recovered_seq"] = json!(1);
            }
            scene.session(&[user("Where to?", BEGAN), twin.clone(), armed(RUN, 0, OPENED)]);
            scene.journal(RUN, 1, &[("token", json!({"text": "To the sea, and to no other place."}))]);
            let session = scene.open().get_session(&id()).unwrap();
            let answers = contents(&session).iter().filter(|text| text.contains("no other place")).count();
            assert_eq!(answers, if is_twin { 1 } else { 2 }, "{run} {numbered}: {:?}", rows(&session));
            assert!(is_twin || rows(&session)[1] == twin, "it is not touched: {:?}", rows(&session));
        }
    }
}

/// A longer row, or one that looks like the beginning of this answer, is the other run's all the same.
#[test]
fn words_of_another_run_in_the_same_turn_are_neither_completed_nor_taken_for_an_answer_that_holds_these() {
    let answer = "To the sea, and to no other place.";
    for words in ["To the sea", &format!("Well. {answer} Or not.")] {
        let scene = Scene::new();
        let mut other = of_run(untagged(json!(words), BEGAN + 1), "other");
        other["_partial"] = json!(true);
        scene.session(&[user("Where to?", BEGAN), other.clone(), armed(RUN, 0, OPENED)]);
        scene.journal(RUN, 1, &[("token", json!({"text": answer}))]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(contents(&session), ["Where to?", words, answer]);
        assert_eq!(rows(&session)[1], other);
    }
}

#[test]
fn a_card_of_another_run_in_the_same_turn_is_not_a_card_of_this_one() {
    let card = json!({"name": "map", "tid": "1", "preview": "the coast", "done": true, "assistant_msg_idx": 1});
    for (run, cards) in [(Some("other"), 2), (Some(RUN), 1), (None, 1)] {
        let scene = Scene::new();
        scene.session(&[user("Where to?", BEGAN), of_run(assistant("Look.", 1), "other"), armed(RUN, 0, OPENED)]);
        let mut known = card.clone();
        if let Some(run) = run {
            known["_recovered_stream_id"] = json!(run);
        }
        scene.edit(|stored| stored["tool_calls"] = json!([known]));
        let called = ("tool", json!({"name": "map", "preview": "the coast"}));
        scene.journal(RUN, 1, &[called, ("tool_complete", json!({"name": "map", "preview": "the coast"}))]);
        let session = scene.open().get_session(&id()).unwrap();
        let shown: Vec<String> = session.tool_cards().map(|card| card.fields().to_json()).collect();
        assert_eq!(shown.len(), cards, "{run:?}: {shown:?}");
        let first: Value = serde_json::from_str(&shown[0]).unwrap();
        assert!(run != Some("other") || first == known, "it is not touched: {shown:?}");
    }
}

#[test]
fn an_error_row_that_says_the_same_is_not_a_row_of_the_answer() {
    let words = "The quota is used up, try again.";
    for beginning in ["The quota", words] {
        let scene = Scene::new();
        let error = json!({
            "role": "assistant", "content": beginning, "timestamp": BEGAN + 1, "_error": true, "_partial": true,
        });
        scene.session(&[user("Where to?", BEGAN), error.clone(), armed(RUN, 0, OPENED)]);
        scene.journal(RUN, 1, &[("token", json!({"text": words}))]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(contents(&session), ["Where to?", words]);
        assert_eq!(rows(&session)[1], error, "it is not touched");
    }
}
