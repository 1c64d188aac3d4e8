//! A follower over connections that break in every way: each event once, in order, and an end.

use std::time::Duration;

use lastword::RunId;
use lastword::client::{Client, ClientError, ClientOptions, Follow, FollowOptions, ListTold, Start, Told};

use crate::journal::{end, frame, line, run, session, tell, told};
use crate::server::{FOLLOWING, Reply, Server, Step, answer, patience, pause, refuse, send, stream};

fn follow(client: &Client) -> Follow {
    client.follow(&session(), &run(), 0, FOLLOWING)
}

/// What is told, in short; the last word may be an error.
async fn all(mut follow: Follow) -> String {
    let mut words = Vec::new();
    loop {
        words.push(match follow.next().await {
            Ok(None) => break,
            Ok(Some(Told::Event(event))) => {
                assert_eq!(event.line, line(event.seq.unwrap()), "the line is told as it is");
                event.seq.unwrap().to_string()
            }
            Ok(Some(Told::Ended(end))) => end.state,
            Ok(Some(Told::Snapshot { reason, .. })) => reason,
            Ok(Some(other)) => format!("{other:?}"),
            Err(error) => {
                words.push(kind(&error).to_owned());
                break;
            }
        });
    }
    words.join(" ")
}

fn kind(error: &ClientError) -> &'static str {
    match error {
        ClientError::Api { .. } => "refused",
        ClientError::Unreachable { .. } => "unreachable",
        ClientError::BrokenOff { .. } => "broken",
        ClientError::BadAnswer { .. } => "nonsense",
        ClientError::GaveUp { .. } => "gave up",
        _ => "else",
    }
}

#[track_caller]
fn assert_asked_behind(server: &Server, expected: &[Option<&str>]) {
    let seen = server.seen();
    let asked: Vec<_> = seen.iter().map(|seen| seen.header("last-event-id")).collect();
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn a_connection_may_break_at_any_byte() {
    let whole = (1..=3).map(frame).collect::<String>() + &end(3);
    let mut cuts = tokio::task::JoinSet::new();
    for cut in 0..whole.len() {
        let whole = whole.clone().into_bytes();
        cuts.spawn(async move {
            let server = Server::with(move |seen, number| match number {
                0 => vec![stream(), Step::Send(whole[..cut].to_vec())],
                _ => tell(seen, 3),
            });
            assert_eq!(all(follow(&server.await.client())).await, "1 2 3 completed", "cut at byte {cut}");
        });
    }
    cuts.join_all().await;
}

#[tokio::test]
async fn every_connection_may_break_and_be_reset() {
    let server = Server::with(|seen, number| {
        let bytes = told(seen, 20).into_bytes();
        let cut = bytes.len().min(40 + 7 * number);
        vec![stream(), Step::Send(bytes[..cut].to_vec()), if number % 2 == 0 { Step::Reset } else { send("") }]
    })
    .await;
    let expected = (1..=20).map(|seq| seq.to_string()).collect::<Vec<_>>().join(" ") + " completed";
    assert_eq!(all(follow(&server.client())).await, expected);
}

#[tokio::test]
async fn events_that_come_again_are_told_once() {
    let server = Server::with(|_, number| {
        let frames: String = (1..=3 + number as u64).flat_map(|seq| [frame(seq), frame(seq)]).collect();
        vec![stream(), send(&frames), send(if number == 2 { "event: end\ndata: {\"last_seq\":5}\n\n" } else { "" })]
    })
    .await;
    assert_eq!(all(follow(&server.client())).await, "1 2 3 4 5 ");
    assert_asked_behind(&server, &[None, Some("r:3"), Some("r:4")]);
}

#[tokio::test]
async fn a_server_may_be_restarted() {
    let mut server = Server::with(|seen, number| match number {
        0 => vec![stream(), send(&frame(1)), send(&frame(2))],
        _ => tell(seen, 4),
    })
    .await;
    let mut follow = follow(&server.client());
    assert!(matches!(follow.next().await, Ok(Some(Told::Event(event))) if event.seq == Some(1)));
    server.end().await;
    let rest = tokio::spawn(all(follow));
    pause(0.3).await;
    server.restart().await;
    assert_eq!(rest.await.unwrap(), "2 3 4 completed");
    assert_asked_behind(&server, &[None, Some("r:2")]);
}

#[tokio::test]
async fn a_server_that_knows_no_such_place_begins_anew() {
    let server = Server::with(|seen, number| match number {
        0 => vec![stream(), send(&frame(1)), send(&frame(2)), send(&frame(3))],
        1 => {
            let snapshot = "event: snapshot\ndata: {\"reason\":\"ahead\",\"run_id\":\"r\",\"last_seq\":2}\n\n";
            vec![stream(), send(snapshot), send(&frame(1))]
        }
        _ => tell(seen, 2),
    })
    .await;
    assert_eq!(all(follow(&server.client())).await, "1 2 3 ahead 1 2 completed");
    assert_asked_behind(&server, &[None, Some("r:3"), Some("r:1")]);
}

#[tokio::test]
async fn the_server_says_how_long_to_wait() {
    let server = Server::with(|seen, number| match number {
        0 => vec![stream(), send("retry: 400\n\n"), send(&frame(1))],
        _ => tell(seen, 1),
    })
    .await;
    let options = FollowOptions { patience: lastword::client::Patience::default() };
    let follow = server.client().follow(&session(), &run(), 0, options);
    assert_eq!(all(follow).await, "1 completed");
    let seen = server.seen();
    let pause = seen[1].at - seen[0].at;
    assert!(Duration::from_millis(400) <= pause && pause < Duration::from_secs(5), "{pause:?}");
}

#[tokio::test]
async fn a_server_in_trouble_is_asked_again_and_one_that_says_no_is_not() {
    let trouble = |last: Reply| {
        let troubles = vec![refuse(500, "io_error"), refuse(503, "draining"), answer(502, "text/html", "<html>"), last];
        vec![vec![stream(), send(&frame(1))]].into_iter().chain(troubles).collect::<Vec<_>>()
    };
    let server = Server::start(trouble(vec![stream(), send(&frame(2)), send(&end(2))])).await;
    assert_eq!(all(follow(&server.client())).await, "1 2 completed");
    let server = Server::start(trouble(refuse(404, "not_found"))).await;
    assert_eq!(all(follow(&server.client())).await, "1 refused");
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn silence_is_a_broken_connection_and_a_heartbeat_is_not() {
    let server = Server::with(|seen, number| match number {
        0 => vec![stream(), send(&frame(1)), Step::Hang],
        1 => vec![stream(), Step::Repeat(b": \n\n".to_vec(), 12, 0.1), send(&frame(2)), send(&end(2))],
        _ => tell(seen, 9),
    })
    .await;
    let options = ClientOptions { silence_max: Duration::from_millis(700), ..ClientOptions::default() };
    assert_eq!(all(follow(&server.client_with(options))).await, "1 2 completed");
    assert_asked_behind(&server, &[None, Some("r:1")]);
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let server = Server::with(|seen, _| vec![stream(), Step::Trickle(told(seen, 2).into_bytes(), 0.002)]).await;
    assert_eq!(all(follow(&server.client())).await, "1 2 completed");
}

#[tokio::test]
async fn an_end_that_comes_too_early_is_none() {
    let server = Server::with(|seen, number| match number {
        0 => vec![stream(), send(&frame(1)), send(&end(3))],
        _ => tell(seen, 3),
    })
    .await;
    assert_eq!(all(follow(&server.client())).await, "1 2 3 completed");
}

#[tokio::test]
async fn nonsense_is_said_to_be_that() {
    let first = |reply: Reply| async move { all(follow(&Server::start(vec![reply]).await.client())).await };
    assert_eq!(first(answer(200, "text/html", "<html>")).await, "nonsense");
    assert_eq!(first(vec![send("220 mail.example ESMTP\r\n")]).await, "broken");
    assert_eq!(first(Vec::new()).await, "broken");
    assert_eq!(first(vec![stream(), send("id: r:one\ndata: {}\n\n")]).await, "nonsense");
    assert_eq!(first(vec![stream(), send(&frame(1)), send("id: x:2\ndata: {}\n\n")]).await, "1 nonsense");
    assert_eq!(first(vec![stream(), send("event: end\ndata: bye\n\n")]).await, "nonsense");
    let endless = Step::Repeat(vec![b'x'; 1 << 20], 100, 0.0);
    assert_eq!(first(vec![stream(), send("data: "), endless]).await, "nonsense");
}

#[tokio::test]
async fn patience_has_an_end_and_the_first_connection_needs_none() {
    let server = Server::start(vec![vec![stream(), send(&frame(1))]]).await;
    let begun = tokio::time::Instant::now();
    let follow = server.client().follow(&session(), &run(), 0, FollowOptions { patience: patience(0.5) });
    assert_eq!(all(follow).await, "1 gave up");
    assert!((0.5..10.0).contains(&begun.elapsed().as_secs_f64()));
    assert!(server.seen().len() > 3, "it was tried more than once");

    let nobody = Server::nobody().await;
    assert_eq!(all(self::follow(&nobody.client())).await, "unreachable");
    let server = Server::start(vec![refuse(503, "draining"), vec![stream()]]).await;
    assert_eq!(all(self::follow(&server.client())).await, "refused");
}

#[tokio::test]
async fn whoever_stops_waiting_misses_nothing() {
    let server = Server::with(|seen, number| {
        let bytes = told(seen, 8).into_bytes();
        vec![stream(), Step::Trickle(bytes[..bytes.len().min(150 + 10 * number)].to_vec(), 0.001)]
    })
    .await;
    let mut follow = follow(&server.client());
    let mut told = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_millis(3), follow.next()).await {
            Ok(Ok(Some(Told::Event(event)))) => told.push(event.seq.unwrap()),
            Ok(Ok(Some(other))) => assert!(matches!(other, Told::Ended(_)), "{other:?}"),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => panic!("{error}"),
            Err(_) => {}
        }
    }
    assert_eq!(told, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_session_is_followed_from_run_to_run() {
    let server = Server::with(|_, number| {
        let run_end = "event: end\ndata: {\"run_id\":\"r\",\"last_seq\":1,\"state\":\"completed\"}\n\n";
        let second = "id: q:1\nevent: token\ndata: {\"event\":\"token\",\"seq\":1,\"payload\":{\"text\":\"Gr\u{fc}\u{df}e 1\"}}\n\n";
        match number {
            0 => vec![stream(), send(&frame(1)), send(run_end)],
            _ => vec![stream(), send(run_end), send(second), send("event: end\ndata: {\"state\":\"deleted\"}\n\n")],
        }
    })
    .await;
    let start = Start::Behind(RunId::parse("p").unwrap(), 4);
    assert_eq!(all(server.client().follow_session(&session(), start, FOLLOWING)).await, "1 completed 1 Deleted");
    assert_asked_behind(&server, &[Some("p:4"), Some("r:1")]);
}

#[tokio::test]
async fn what_is_live_is_asked_for_until_there_is_a_place_to_go_on_from() {
    let server = Server::with(|_, number| match number {
        0 => vec![stream()],
        1 => vec![stream(), send("id: r:6\n\n")],
        _ => vec![stream(), send(&frame(7)), send("event: end\ndata: {\"state\":\"deleted\"}\n\n")],
    })
    .await;
    let told = all(server.client().follow_session(&session(), Start::Now, FOLLOWING)).await;
    assert_eq!(told, "Missed 7 Deleted");
    let now = "GET /v1/sessions/s/events?after=now";
    assert_eq!(server.asked(), [now, now, "GET /v1/sessions/s/events"]);
    assert_asked_behind(&server, &[None, None, Some("r:6")]);
}

#[tokio::test]
async fn the_list_is_followed_over_a_restart() {
    let changed = |id: &str| send(&format!("id: {id}\nevent: changed\ndata: {{\"session_id\":\"{id}\"}}\n\n"));
    let server = Server::start(vec![
        vec![stream(), changed("a-1"), changed("a-2")],
        vec![stream(), changed("a-2"), changed("a-3")],
        vec![stream(), send("event: snapshot\ndata: {}\n\n"), changed("b-1")],
        refuse(401, "unauthorized"),
    ])
    .await;
    let mut list = server.client().follow_list(FOLLOWING);
    let mut told = Vec::new();
    while let Ok(change) = list.next().await {
        told.push(match change {
            ListTold::Changed(summary) => summary[15..18].to_owned(),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(told, ["a-1", "a-2", "a-3", "Snapshot", "b-1"]);
    assert_asked_behind(&server, &[None, Some("a-2"), Some("a-3"), Some("b-1")]);
}
