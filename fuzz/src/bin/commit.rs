#![no_main]

#[path = "../../rules/commit.rs"]
mod rule;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rule::check(bytes));
