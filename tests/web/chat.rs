//! `Chat` of `@ai-sdk/react` with the transport that `useChat` has by default, in both versions that people use.

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
