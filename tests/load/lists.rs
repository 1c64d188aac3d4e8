//! A page of a very long list beside one of a short list.

use std::fs;
use std::time::{Duration, Instant};

use lastword::storage::Layout;
use lastword::{NewSession, Options, SessionId, Store};
use tempfile::TempDir;

use crate::measure::{millis, quantile};
use crate::served::Served;
use crate::wire::Caller;
use crate::{alone, runtime, size};

const SHORT: usize = 100;
const ROUNDS: usize = 60;

/// A data directory with so many sessions: copies of one.
fn filled(sessions: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let store = Store::open(&data, Options::default()).unwrap();
    let first = SessionId::parse("s0").unwrap();
    store.create(NewSession::titled("Plan a trip").with_id(first.clone())).unwrap();
    drop(store);
    let layout = Layout::new(&data);
    let text = fs::read_to_string(layout.sidecar(&first)).unwrap();
    for nth in 1..sessions {
        let other = SessionId::parse(&format!("s{nth}")).unwrap();
        let text = text.replace("\"s0\"", &format!("\"s{nth}\"")).replace("Plan a trip", &format!("Plan a trip {nth}"));
        fs::write(layout.sidecar(&other), text).unwrap();
    }
    folder
}

async fn timed(caller: &mut Caller, path: &str) -> Duration {
    let begun = Instant::now();
    let (status, body) = caller.get(path).await;
    assert_eq!(status, 200, "{body}");
    begun.elapsed()
}

/// How long a path takes in both lists, in turns.
async fn compared(long: &mut Caller, short: &mut Caller, path: &str) -> (Duration, Duration) {
    let (mut in_long, mut in_short) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        in_long.push(timed(long, path).await);
        in_short.push(timed(short, path).await);
    }
    (quantile(&mut in_long, 0.5), quantile(&mut in_short, 0.5))
}

#[test]
fn a_page_of_a_long_list_takes_the_time_of_a_page() {
    let _turn = alone();
    let sessions = size("LASTWORD_LOAD_SESSIONS", 5_000);
    let (long, short) = (Served::start_in(filled(sessions), &[]), Served::start_in(filled(SHORT), &[]));
    runtime().block_on(async {
        let (mut long, mut short) = (Caller::connect(long.address).await, Caller::connect(short.address).await);
        eprintln!("the first page of {sessions} sessions: {:.1} ms", millis(timed(&mut long, "/v1/sessions").await));
        timed(&mut short, "/v1/sessions").await;
        for (path, ratio_max) in [
            ("/v1/sessions?limit=50", Some(3.0)),
            ("/v1/sessions?limit=50&q=trip", Some(3.0)),
            // Whoever looks for what is not there has so many sessions looked through a page, in memory.
            ("/v1/sessions?limit=50&q=nowhere", None),
        ] {
            let (in_long, in_short) = compared(&mut long, &mut short, path).await;
            let ratio = in_long.as_secs_f64() / in_short.as_secs_f64();
            eprintln!(
                "{path}: {:.2} ms of {sessions} sessions, {:.2} ms of {SHORT}: {ratio:.2}",
                millis(in_long),
                millis(in_short)
            );
            assert!(ratio_max.is_none_or(|most| ratio <= most), "{path}: {ratio}");
        }
    });
}
