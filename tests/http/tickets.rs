//! Tickets: who gets one, what it opens, and what it does not.

use lastword::http::Tokens;
use serde_json::{Value, json};

use crate::house::{DONE, House};
use crate::wire::{Answer, Ask, ask};

const WRITE: &str = "0123456789abcdef";
const READ: &str = "fedcba9876543210";

fn tokens() -> Tokens {
    Tokens::parse(&format!("{WRITE}\n{READ} read-only\n")).unwrap()
}

/// A server with tokens, and a finished run `r` in session `a`.
fn server() -> House {
    let server = House::with(|options| options.tokens = tokens());
    for (path, body) in [
        ("/v1/sessions", json!({ "session_id": "a" })),
        ("/v1/sessions", json!({ "session_id": "b" })),
        ("/v1/sessions/a/runs", json!({ "message": "Where to?", "run_id": "r" })),
    ] {
        let answer = server.send(&by(WRITE, ask("POST", path).json(body)));
        assert!((200..300).contains(&answer.status), "{}", answer.text());
    }
    server.send(&by(WRITE, ask("POST", "/v1/sessions/a/runs/r/events").lines(DONE))).expect(200);
    server
}

fn by(token: &str, ask: Ask) -> Ask {
    ask.header("authorization", &format!("Bearer {token}"))
}

fn request(path: &str) -> Ask {
    ask("POST", "/v1/tickets").json(json!({ "path": path }))
}

/// A ticket for a path.
#[track_caller]
fn ticket(server: &House, token: &str, path: &str) -> String {
    let issued = server.send(&by(token, request(path))).expect(201).json();
    issued["ticket"].as_str().unwrap().to_owned()
}

fn get(server: &House, path: &str, ticket: &str) -> Answer {
    let sign = if path.contains('?') { '&' } else { '?' };
    server.get(&format!("{path}{sign}ticket={ticket}"))
}

#[test]
fn a_ticket_reads_its_path_and_what_is_below_for_an_hour() {
    let server = server();
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let issued = server.send(&by(READ, request("/v1/sessions/a"))).expect(201).json();
    let expires_in = issued["expires_at"].as_f64().unwrap() - before;
    assert!((3599.0..3610.0).contains(&expires_in), "{expires_in}");
    let ticket = issued["ticket"].as_str().unwrap();
    assert!(!ticket.contains(READ));
    // As an EventSource asks: no header but Accept.
    let stream =
        |path: &str| ask("GET", &format!("{path}?ticket={ticket}&after=0")).header("accept", "text/event-stream");
    let events = stream("/v1/sessions/a/runs/r/events").open(server.address).events();
    assert!(events.iter().any(|event| event.name == "end"), "{events:?}");
    for path in
        ["/v1/sessions/a", "/v1/sessions/a?view=metadata", "/v1/sessions/a/branches", "/v1/sessions/a/runs/r/events"]
    {
        get(&server, path, ticket).expect(200);
        let sign = if path.contains('?') { '&' } else { '?' };
        let head = ask("HEAD", &format!("{path}{sign}ticket={ticket}")).open(server.address);
        assert_eq!(head.status, 200, "{path}");
    }
    for path in ["/v1/sessions", "/v1/sessions/b", "/v1/sessions/ab", "/v1/events", "/metrics", "/api/chat/a/stream"] {
        assert_eq!(get(&server, path, ticket).expect(401).code(), "unauthorized", "{path}");
    }
}

#[test]
fn other_spellings_of_a_path_are_other_paths() {
    let server = server();
    let ticket = ticket(&server, WRITE, "/v1/sessions/a/runs");
    get(&server, "/v1/sessions/a/runs/r/events", &ticket).expect(200);
    for path in [
        "/v1/sessions/a/runs/../../b",
        "/v1/sessions/a/runs/%2e%2e/branches",
        "/v1/sessions/a/runs/..%2fbranches",
        "/v1/sessions/a/runs/%2e%2e%2f%2e%2e%2fb",
        "/v1/sessions/a/runs//r/events",
        "//v1/sessions/a/runs/r/events",
        "/v1/sessions/a/runs/./r/events",
        "/v1/sessions/%61/runs/r/events",
        "/v1/sessions/a/runs/r/events/",
        "/v1/sessions/a/runs%2Fr/events",
        "/v1/sessions/a",
    ] {
        assert_eq!(get(&server, path, &ticket).status, 401, "{path}");
    }
    for path in [
        "",
        "/",
        "v1/sessions",
        "/v1/sessions/",
        "//v1",
        "/v1/../metrics",
        "/v1/sessions/%61",
        "/v1/sessions?x=1",
        "http://localhost/v1",
    ] {
        assert_eq!(server.send(&by(WRITE, request(path))).expect(400).code(), "invalid_argument", "{path}");
    }
    for body in [json!({}), json!({ "path": 7 }), json!({ "path": "/v1", "hours": 9 }), Value::Null] {
        server.send(&by(WRITE, ask("POST", "/v1/tickets").json(body))).expect(400);
    }
    server.send(&by(WRITE, request(&format!("/{}", "x".repeat(9_000))))).expect(413);
}

#[test]
fn a_ticket_changes_nothing_and_gets_no_other_ticket() {
    let server = server();
    let ticket = ticket(&server, WRITE, "/v1");
    for (method, path, body) in [
        ("POST", "/v1/tickets", json!({ "path": "/v1/events" })),
        ("POST", "/v1/sessions", json!({})),
        ("PATCH", "/v1/sessions/a", json!({ "title": "x" })),
        ("DELETE", "/v1/sessions/a", json!({})),
        ("POST", "/v1/sessions/a/runs", json!({ "message": "x" })),
        ("OPTIONS", "/v1/sessions", json!({})),
        ("PUT", "/v1/sessions", json!({})),
    ] {
        let asked = ask(method, &format!("{path}?ticket={ticket}")).header("if-match", "*").json(body);
        assert_eq!(server.send(&asked).status, 401, "{method} {path}");
    }
    get(&server, "/v1/sessions/a", &ticket).expect(200);
}

#[test]
fn a_damaged_ticket_opens_nothing_and_is_not_repeated() {
    let server = server();
    let ticket = ticket(&server, WRITE, "/v1/sessions/a");
    let flipped = |at: usize| {
        let mut bytes = ticket.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    let wrong = ["", "x", WRITE, &ticket[1..], &format!("{ticket}A"), &flipped(0), &flipped(20), &flipped(60)]
        .map(str::to_owned);
    for wrong in wrong {
        let refusal = get(&server, "/v1/sessions/a", &wrong).expect(401);
        assert!(wrong.len() < 2 || !refusal.text().contains(&wrong), "{}", refusal.text());
        assert!(refusal.text().contains("/v1/tickets"), "{}", refusal.text());
    }
    // Two of them are as good as none.
    server.get(&format!("/v1/sessions/a?ticket={ticket}&ticket={ticket}")).expect(401);
    // A token is not a ticket, and a ticket is neither a token nor a cookie.
    server.send(&by(&ticket, ask("GET", "/v1/sessions/a"))).expect(401);
    server.send(&ask("GET", "/v1/sessions/a").header("cookie", &format!("lastword={ticket}"))).expect(401);
    // A bearer header decides.
    server.send(&by("wrong", ask("GET", &format!("/v1/sessions/a?ticket={ticket}")))).expect(401);
}

#[test]
fn a_ticket_outlives_a_restart_and_ends_with_its_token() {
    let mut server = server();
    let (write, read) = (ticket(&server, WRITE, "/v1/sessions"), ticket(&server, READ, "/v1/sessions"));
    server.end();
    let again = House::with(|options| {
        options.tokens = Tokens::parse(&format!("another-token-here\n{READ} read-only")).unwrap()
    });
    get(&again, "/v1/sessions", &read).expect(200);
    get(&again, "/v1/sessions", &write).expect(401);
}

#[test]
fn a_server_without_tokens_gives_tickets_too_and_needs_none() {
    let server = House::new();
    server.session("a");
    let issued = server.send(&request("/v1/sessions/a")).expect(201).json();
    let ticket = issued["ticket"].as_str().unwrap();
    get(&server, "/v1/sessions/a", ticket).expect(200);
    get(&server, "/v1/sessions", "whatever").expect(200);
    // It is void where there are tokens.
    let other = House::with(|options| options.tokens = tokens());
    get(&other, "/v1/sessions/a", ticket).expect(401);
}

#[test]
fn every_call_that_reads_takes_the_parameter() {
    let server = server();
    let ticket = ticket(&server, WRITE, "/v1");
    let chat = self::ticket(&server, WRITE, "/api/chat/a");
    for path in ["/v1/sessions?limit=1", "/v1/check", "/v1/check?session=a", "/v1/sessions/a?view=metadata"] {
        get(&server, path, &ticket).expect(200);
    }
    get(&server, "/api/chat/a/messages?limit=1", &chat).expect(200);
    assert!([200, 204].contains(&get(&server, "/api/chat/a/stream", &chat).status));
    let stream = ask("GET", &format!("/v1/events?ticket={ticket}")).open(server.address);
    assert_eq!(stream.status, 200);
    let described = server.get("/openapi.json").expect(200).json();
    let schemes = &described["components"]["securitySchemes"];
    assert_eq!((&schemes["ticket"]["in"], &schemes["ticket"]["name"]), (&json!("query"), &json!("ticket")));
    assert_eq!((&schemes["cookie"]["in"], &schemes["cookie"]["name"]), (&json!("cookie"), &json!("lastword")));
    let security = |path: &str, method: &str| described["paths"][path][method]["security"].to_string();
    assert!(security("/v1/events", "get").contains("ticket"));
    assert!(!security("/v1/sessions", "post").contains("ticket"));
}
