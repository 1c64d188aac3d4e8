//! Who is let in: names, pages, tokens. And what every answer carries.

use lastword::http::Tokens;
use serde_json::json;

use crate::house::House;
use crate::wire::ask;

const WRITE: &str = "0123456789abcdef";
const READ: &str = "fedcba9876543210";

#[test]
fn a_name_that_was_made_to_point_here_is_refused() {
    let house = House::with(|options| options.hosts = vec!["chat.example.org".to_owned()]);
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:4437", 200),
        ("[::1]:80", 200),
        ("chat.example.org", 200),
        ("CHAT.example.org:8080", 200),
        ("evil.example.org", 403),
        ("evil.localhost", 403),
        ("localhost.evil.org", 403),
        ("chat.example.org.evil.org", 403),
        ("127.0.0.1.evil.org", 403),
    ] {
        for path in ["/v1/sessions", "/", "/healthz"] {
            let answer = house.send(&ask("GET", path).header("host", host));
            assert_eq!(answer.status, status, "{host} {path}");
        }
    }
    house.send(&ask("GET", "/v1/sessions").header("host", "localhost").header("host", "localhost")).expect(400);
}

#[test]
fn a_page_of_another_site_can_neither_read_nor_write() {
    let house = House::new();
    let own = format!("http://{}", house.address);
    let create = |origin: &str| house.send(&ask("POST", "/v1/sessions").header("origin", origin).json(json!({})));
    create(&own).expect(201);
    for origin in ["http://evil.example.org", "null", "http://127.0.0.1:1", "", &format!("{own}.evil.org"), "file://"] {
        assert_eq!(create(origin).expect(403).code(), "forbidden", "{origin}");
        house.send(&ask("GET", "/v1/sessions").header("origin", origin)).expect(403);
    }
    let cross = |method: &str, path: &str| house.send(&ask(method, path).header("sec-fetch-site", "cross-site"));
    cross("POST", "/v1/sessions").expect(403);
    cross("GET", "/v1/sessions").expect(403);
    // A link to the page is no harm.
    cross("GET", "/").expect(200);
    assert!(
        house.send(&ask("GET", "/v1/sessions").header("origin", &own)).header("access-control-allow-origin").is_none()
    );
    let preflight = ask("OPTIONS", "/v1/sessions").header("origin", "http://evil.example.org");
    house.send(&preflight.header("access-control-request-method", "POST")).expect(403);
}

#[test]
fn an_origin_that_is_configured_is_let_in_and_only_that_one() {
    let origin = "https://ui.example.org";
    let house = House::with(|options| options.origins = vec![origin.to_owned()]);
    let preflight = ask("OPTIONS", "/v1/sessions").header("origin", origin);
    let answer = house.send(&preflight.header("access-control-request-method", "PATCH")).expect(204);
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("PATCH"));
    let allowed = answer.header("access-control-allow-headers").unwrap();
    assert!(allowed.contains("last-event-id") && allowed.contains("user-agent"), "{allowed}");
    let created = house
        .send(
            &ask("POST", "/v1/sessions")
                .header("origin", origin)
                .header("sec-fetch-site", "cross-site")
                .json(json!({})),
        )
        .expect(201);
    assert_eq!((created.header("access-control-allow-origin"), created.header("vary")), (Some(origin), Some("origin")));
    let exposed = created.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("etag") && exposed.contains("lastword-run-state"), "{exposed}");
    house.send(&ask("GET", "/v1/sessions").header("origin", "https://other.example.org")).expect(403);
}

#[test]
fn with_tokens_nobody_comes_in_without_one() {
    let text = format!("{WRITE}\n{READ} read-only\n");
    let house = House::with(|options| options.tokens = Tokens::parse(&text).unwrap());
    let with =
        |ask: crate::wire::Ask, token: &str| house.send(&ask.header("authorization", &format!("Bearer {token}")));
    for path in
        ["/v1/sessions", "/metrics", "/v1/events", "/v1/check", "/v1/sessions/a", "/api/chat/a/stream", "/nothing"]
    {
        let refusal = house.get(path).expect(401);
        assert_eq!((refusal.code().as_str(), refusal.header("www-authenticate").is_some()), ("unauthorized", true));
        for wrong in ["", "x", "0123456789abcdeF", "0123456789abcdef0"] {
            with(ask("GET", path), wrong).expect(401);
        }
    }
    let page = [
        "/",
        "/page.js",
        "/page.css",
        "/compose.js",
        "/dom.js",
        "/list.js",
        "/login.js",
        "/server.js",
        "/transcript.js",
    ];
    for path in page.into_iter().chain(["/healthz", "/readyz", "/client/chat-transport.ts", "/openapi.json"]) {
        house.get(path).expect(200);
    }
    with(ask("POST", "/v1/sessions").json(json!({ "session_id": "a" })), WRITE).expect(201);
    with(ask("GET", "/v1/sessions/a"), READ).expect(200);
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("DELETE", "/v1/sessions/a"),
        ("PATCH", "/v1/sessions/a"),
        ("POST", "/api/chat"),
        ("POST", "/v1/sessions/a/runs"),
    ] {
        assert_eq!(with(ask(method, path).json(json!({})), READ).expect(403).code(), "forbidden");
    }
    house.send(&ask("GET", "/v1/sessions").header("authorization", &format!("bearer {READ}"))).expect(200);
    house.send(&ask("GET", "/v1/sessions").header("authorization", &format!("Basic {READ}"))).expect(401);
    house.get(&format!("/v1/sessions?token={WRITE}")).expect(401);
}

#[test]
fn every_answer_tells_the_browser_to_be_careful() {
    let house = House::new();
    house.run("a", "r");
    house.append("a", "r", crate::house::DONE).expect(200);
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/v1/sessions"),
        ("GET", "/nothing"),
        ("PUT", "/v1/sessions"),
        ("GET", "/v1/sessions/a/runs/r/events"),
        ("GET", "/openapi.json"),
    ] {
        let answer = house.send(&ask(method, path));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(answer.header("cache-control").is_some() && answer.header("x-request-id").is_some(), "{path}");
        assert!(answer.header("access-control-allow-origin").is_none(), "{path}");
    }
    let policy = house.get("/").header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("script-src 'self'"), "{policy}");
}

#[test]
fn what_is_not_there_and_what_cannot_be_done_is_said_in_json() {
    let house = House::new();
    assert_eq!(house.get("/nothing").expect(404).code(), "not_found");
    assert_eq!(house.send(&ask("PUT", "/v1/sessions")).expect(405).code(), "method_not_allowed");
    assert_eq!(house.send(&ask("POST", "/healthz")).expect(405).code(), "method_not_allowed");
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    use lastword::http::{ServeError, Server, ServerOptions};
    let house = House::new();
    for (listen, tokens) in [("0.0.0.0:0", ""), ("[::]:0", ""), ("0.0.0.0:0", WRITE)] {
        let tokens = Tokens::parse(tokens).unwrap_or_default();
        let is_protected = !tokens.is_empty();
        let options = ServerOptions { listen: listen.parse().unwrap(), tokens, ..ServerOptions::default() };
        let bound = house.block_on(Server::bind(house.store.clone(), house.supervisor.clone(), options));
        match bound {
            Ok(_) => assert!(is_protected, "{listen}"),
            Err(error) => {
                assert!(!is_protected && matches!(error, ServeError::Unprotected { .. }), "{error}");
                assert!(error.to_string().contains("token"), "{error}");
            }
        }
    }
}
