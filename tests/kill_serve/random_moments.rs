//! The server dies at random moments while producers and followers work, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lastword::client::Client;
use lastword::{Durability, SessionId};
use tokio::task::JoinHandle;

use crate::dice::Dice;
use crate::host::{DEADLINE, Host, create, in_time, read, run_id, runtime, session_id};
use crate::producers::{End, Manner, Produced, answer, wait_for};
use crate::verdict::{check_directory, check_produced, check_seen, check_transcript, journal};
use crate::watchers::{Seen, watch_run, watch_run_in_pieces, watch_session};

const LAST: &str = "last";

/// When to kill.
#[derive(Debug)]
enum Moment {
    /// So long after it listens.
    Passed(u64),
    /// When so many more events are acknowledged.
    Acknowledged(u64),
    /// Before it listens, and once more later.
    Starting(u64),
}

impl Moment {
    fn choose(dice: &mut Dice) -> Self {
        match dice.below(5) {
            0 | 1 => Moment::Passed(dice.below(300)),
            2 | 3 => Moment::Acknowledged(dice.below(400)),
            _ => Moment::Starting(dice.below(50)),
        }
    }

    /// Lets the server live until then.
    fn wait(&self, host: &mut Host, acknowledged: &AtomicU64) {
        match *self {
            Moment::Passed(millis) => std::thread::sleep(std::time::Duration::from_millis(millis)),
            Moment::Acknowledged(more) => wait_for(acknowledged, more),
            Moment::Starting(millis) => {
                host.kill();
                host.begin_to_revive();
                std::thread::sleep(std::time::Duration::from_millis(millis));
            }
        }
    }
}

/// Everything that happened in a session.
struct Story {
    session: SessionId,
    produced: Vec<Produced>,
    seen_of_runs: Vec<Vec<Seen>>,
    seen_of_session: Seen,
}

/// Runs one after the other, each with followers, until it is enough.
async fn live(
    client: Client,
    session: SessionId,
    manner: Manner,
    acknowledged: Arc<AtomicU64>,
    is_enough: Arc<AtomicBool>,
) -> Story {
    create(&client, &session).await;
    let seen_of_session = tokio::spawn(watch_session(client.clone(), session.clone(), run_id(LAST)));
    let (mut produced, mut watching, mut dice) = (Vec::new(), Vec::new(), Dice(manner.seed));
    loop {
        let is_last = is_enough.load(Ordering::Relaxed);
        let run = run_id(&if is_last { LAST.to_owned() } else { format!("r{}", produced.len()) });
        let manner = Manner { seed: dice.roll(), ..manner };
        let batches = 5 + dice.below(60);
        let answered = answer(client.clone(), session.clone(), run.clone(), batches, manner, acknowledged.clone());
        let answered = tokio::spawn(answered);
        // Nobody can follow a run before it is there.
        wait_until_begun(&client, &session, &run).await;
        watching.push(vec![
            tokio::spawn(watch_run(client.clone(), session.clone(), run.clone())),
            tokio::spawn(watch_run_in_pieces(client.clone(), session.clone(), run.clone(), 40)),
        ]);
        produced.push(answered.await.expect("a producer does not break"));
        if is_last {
            break;
        }
    }
    let mut seen_of_runs = Vec::new();
    for followers in watching {
        seen_of_runs.push(all_of(followers).await);
    }
    Story { session, produced, seen_of_runs, seen_of_session: seen_of_session.await.expect("no follower breaks") }
}

async fn wait_until_begun(client: &Client, session: &SessionId, run: &lastword::RunId) {
    loop {
        match crate::host::answered(|| client.events(session, run, 0)).await {
            Ok(_) => return,
            Err(error) => assert_eq!(error.code(), Some("not_found"), "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
}

async fn all_of(followers: Vec<JoinHandle<Seen>>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for follower in followers {
        seen.push(follower.await.expect("no follower breaks"));
    }
    seen
}

impl Story {
    fn judge(&self, host: &Host) {
        let session = self.session.as_str();
        let mut lapsed = 0;
        for (produced, seen) in self.produced.iter().zip(&self.seen_of_runs) {
            let lines = journal(&host.data, session, produced.run.as_str());
            check_produced(produced, &lines);
            seen.iter().for_each(|seen| check_seen(seen, &produced.run, &lines));
            check_seen(&self.seen_of_session, &produced.run, &lines);
            lapsed += usize::from(produced.end != End::Done);
        }
        println!("session {session}: {} runs, {lapsed} lapsed", self.produced.len());
        assert_eq!(self.seen_of_session.events.len(), self.produced.len(), "a run that nobody produced");
    }

    fn check_transcript(&self, host: &Host, session: &serde_json::Value) {
        let lines = |produced: &Produced| journal(&host.data, self.session.as_str(), produced.run.as_str());
        let lines: Vec<Vec<String>> = self.produced.iter().map(lines).collect();
        let turns = self.produced.iter().zip(&lines);
        let turns: Vec<_> = turns.map(|(produced, lines)| (produced.message.as_str(), lines.as_slice())).collect();
        check_transcript(session, &turns);
    }
}

const MANNERS: [(Durability, Option<f64>); 4] = [
    (Durability::Buffered, None),
    (Durability::Durable, Some(20.0)),
    (Durability::Buffered, Some(3.0)),
    (Durability::Durable, None),
];

/// Kills the server so many times while four sessions are at work, and judges what everybody saw.
fn survive(args: &[&str], seed: u64, kills: usize) {
    let mut host = Host::start(args);
    let (runtime, client) = (runtime(), host.client());
    let (acknowledged, is_enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let lives = MANNERS.iter().zip(1_u64..).map(|((durability, lease_seconds), number)| {
        let manner = Manner { durability: *durability, lease_seconds: *lease_seconds, seed: seed << 8 | number };
        let session = session_id(&format!("s{number}"));
        runtime.spawn(live(client.clone(), session, manner, acknowledged.clone(), is_enough.clone()))
    });
    let lives: Vec<_> = lives.collect();
    let mut dice = Dice(seed);
    for kill in 0..kills {
        let moment = Moment::choose(&mut dice);
        // Shown by the test harness if the check fails.
        println!("seed {seed}, kill {kill}: {moment:?}, {} acknowledged", acknowledged.load(Ordering::Relaxed));
        moment.wait(&mut host, &acknowledged);
        host.kill();
        std::thread::sleep(dice.millis(60));
        host.revive();
    }
    is_enough.store(true, Ordering::Relaxed);
    let stories: Vec<Story> = runtime.block_on(async {
        let mut stories = Vec::new();
        for life in lives {
            stories.push(in_time("everybody sees the end", DEADLINE, life).await.expect("nobody breaks"));
        }
        stories
    });
    let sessions: Vec<_> = stories.iter().map(|story| runtime.block_on(read(&client, &story.session))).collect();
    host.stop();
    for (story, session) in stories.iter().zip(&sessions) {
        story.judge(&host);
        story.check_transcript(&host, session);
    }
    check_directory(&host.data);
    assert!(acknowledged.load(Ordering::Relaxed) > 500, "hardly anything was ever appended");
}

#[test]
fn thirteen_deaths_of_the_server_lose_nothing_that_anybody_was_told() {
    survive(&["--log", "warn"], 1, 13);
}

#[test]
fn twelve_deaths_of_a_server_that_shows_only_what_is_durable_lose_nothing_either() {
    survive(&["--log", "warn", "--durability", "durable"], 2, 12);
}
