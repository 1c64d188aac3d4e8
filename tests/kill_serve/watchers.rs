//! Followers, and what they were told. None may be told to forget anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lastword::client::{Client, EndNotice, Follow, FollowOptions, Start, Told};
use lastword::{RunId, SessionId};

use crate::host::{DEADLINE, PATIENCE};

/// What a follower was told.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The events' numbers and lines, run by run.
    pub(crate) events: BTreeMap<String, Vec<(u64, String)>>,
    pub(crate) ends: Vec<EndNotice>,
    /// When the last end was told.
    pub(crate) ended_at: Option<Instant>,
}

impl Seen {
    pub(crate) fn of(&self, run: &RunId) -> &[(u64, String)] {
        self.events.get(run.as_str()).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn end_of(&self, run: &RunId) -> Option<&EndNotice> {
        self.ends.iter().find(|end| &end.run == run)
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Event(event) => {
                let (run, seq) = (event.run.expect("it has a run"), event.seq.expect("it has a number"));
                assert_eq!(event.id, format!("{run}:{seq}"));
                let events = self.events.entry(run.to_string()).or_default();
                let last = events.last().map_or(0, |(last, _)| *last);
                assert_eq!(seq, last + 1, "run {run}: twice, out of order, or behind a gap");
                assert!(self.ends.iter().all(|end| end.run != run), "run {run} goes on behind its end");
                events.push((seq, event.line));
            }
            Told::Ended(end) => {
                let last = self.of(&end.run).last().map(|(last, _)| *last);
                assert_eq!(end.last_seq, Some(last.unwrap_or(0)), "the end is not behind the last event: {end:?}");
                assert!(self.end_of(&end.run).is_none(), "{end:?} was told twice");
                self.ends.push(end);
                self.ended_at = Some(Instant::now());
            }
            Told::Gap { .. } => {}
            told => panic!("nobody asked for {told:?}"),
        }
    }
}

fn options() -> FollowOptions {
    FollowOptions { patience: PATIENCE }
}

/// Sees a run to its end.
pub(crate) async fn watch_run(client: Client, session: SessionId, run: RunId) -> Seen {
    let follow = client.follow(&session, &run, 0, options());
    see(follow, &format!("run {run} of {session}"), |seen| !seen.ends.is_empty()).await
}

/// Sees a run to its end, and forgets its connections now and then: it begins anew behind what it has seen.
pub(crate) async fn watch_run_in_pieces(client: Client, session: SessionId, run: RunId, piece: usize) -> Seen {
    let mut seen = Seen::default();
    while seen.ends.is_empty() {
        let after = seen.of(&run).len();
        let mut follow = client.follow(&session, &run, after as u64, options());
        while seen.ends.is_empty() && seen.of(&run).len() < after + piece {
            match next(&mut follow, &format!("run {run} of {session}, in pieces")).await {
                Some(told) => seen.take(told),
                None => panic!("run {run} is over without an end"),
            }
        }
    }
    seen
}

/// Sees a session until this run has ended.
pub(crate) async fn watch_session(client: Client, session: SessionId, last: RunId) -> Seen {
    let follow = client.follow_session(&session, Start::First, options());
    see(follow, &format!("session {session}"), |seen| seen.end_of(&last).is_some()).await
}

async fn see(mut follow: Follow, what: &str, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut seen = Seen::default();
    while !is_enough(&seen) {
        match next(&mut follow, what).await {
            Some(told) => seen.take(told),
            None => panic!("{what}: over without an end"),
        }
    }
    seen
}

/// What a follower is told next. Where the first connection fails, it is tried again.
async fn next(follow: &mut Follow, what: &str) -> Option<Told> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let told = tokio::time::timeout(DEADLINE, follow.next()).await;
        match told.unwrap_or_else(|_| panic!("{what}: nothing is told")) {
            Ok(told) => return told,
            Err(error) => {
                assert!(error.is_transient() && Instant::now() < deadline, "{what}: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
