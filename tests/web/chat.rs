//! `Chat` of `@ai-sdk/react` in both versions that people use: with the transport that `useChat` has by default, and with
//! ours.

use crate::house::House;

fn in_both_versions(scene: &str) {
    std::thread::scope(|scope| {
        for version in ["6", "7"] {
            scope.spawn(move || House::open().play(scene, &[version]));
        }
    });
}

#[test]
fn a_chat_shows_what_was_saved() {
    in_both_versions("chat_answers");
}

#[test]
fn a_chat_whose_server_was_killed_resumes_to_the_end_that_was_saved() {
    in_both_versions("chat_crash");
}

#[test]
fn a_chat_resumes_to_its_end_though_others_read_the_dead_run_first() {
    in_both_versions("chat_late");
}

#[test]
fn a_chat_that_lost_its_connection_resumes_the_live_answer() {
    in_both_versions("chat_cut");
}

#[test]
fn any_events_are_the_same_message_in_the_stream_and_in_the_history() {
    in_both_versions("chat_history");
}

#[test]
fn the_transport_has_the_types_of_both_versions() {
    House::open().play("transport_types", &[]);
}

#[test]
fn the_transport_goes_through_the_base_path_of_a_proxy() {
    House::open().play("transport_base_path", &[]);
}

#[test]
fn the_transport_sends_little_stops_runs_and_resumes_them() {
    in_both_versions("chat_transport");
}

#[test]
fn five_turns_are_told_to_the_model_as_they_were_whatever_happens_to_them() {
    in_both_versions("chat_turns");
}
