//! Login and logout: a token becomes a cookie, which counts like the token and only from the server's own page.

use lastword::http::Tokens;
use serde_json::json;

use crate::house::House;
use crate::wire::{Answer, Ask, ask};

const WRITE: &str = "0123456789abcdef";
const READ: &str = "fedcba9876543210";

fn server() -> House {
    let text = format!("{WRITE}\n{READ} read-only\n");
    House::with(|options| options.tokens = Tokens::parse(&text).unwrap())
}

fn form(token: &str) -> Ask {
    let body = format!("token={token}");
    ask("POST", "/login").header("content-type", "application/x-www-form-urlencoded").bytes(body.as_bytes())
}

fn login(server: &House, token: &str) -> Answer {
    server.send(&form(token).header("accept", "application/json"))
}

/// The name and value of the cookie that an answer sets.
fn cookie(answer: &Answer) -> String {
    answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[test]
fn a_right_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get() {
    let server = server();
    let answer = login(&server, WRITE).expect(204);
    let set = answer.header("set-cookie").unwrap();
    let (pair, attributes) = set.split_once("; ").unwrap();
    assert!(pair.starts_with("lastword=") && !pair.contains(WRITE), "{pair}");
    assert_eq!(attributes, "Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict");
    server.get("/v1/sessions").expect(401);
    server.send(&ask("GET", "/v1/sessions").header("cookie", pair)).expect(200);
    // The proxy that ends TLS calls the server by the name that the browser called.
    let https = form(WRITE).header("host", "127.0.0.1").header("origin", "https://127.0.0.1");
    let answer = server.send(&https.header("accept", "application/json")).expect(204);
    assert!(answer.header("set-cookie").unwrap().ends_with("; SameSite=Strict; Secure"));
}

#[test]
fn a_native_form_is_led_to_the_page() {
    let server = server();
    let right = server.send(&form(WRITE)).expect(303);
    assert_eq!(right.header("location"), Some("/"));
    server.send(&ask("GET", "/v1/sessions").header("cookie", &cookie(&right))).expect(200);
    let wrong = server.send(&form("wrong")).expect(303);
    assert_eq!((wrong.header("location"), wrong.header("set-cookie")), (Some("/?login=wrong"), None));
    // Browsers say `null` for a form of a page without referrers, and where it came from beside it.
    let null = form(WRITE).header("origin", "null");
    server.send(&null.clone().header("sec-fetch-site", "same-origin")).expect(303);
    server.send(&null).expect(403);
    for (site, origin) in [("cross-site", "https://evil.example.org"), ("same-site", "http://localhost:9")] {
        server.send(&form(WRITE).header("sec-fetch-site", site).header("origin", origin)).expect(403);
    }
    let policy = server.get("/").header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("form-action 'self'"), "{policy}");
}

#[test]
fn a_wrong_token_is_refused_without_being_repeated() {
    let server = server();
    for wrong in ["", "s3cret-but-wrong", "0123456789abcde", "0123456789abcdef0"] {
        let refusal = login(&server, wrong).expect(401);
        assert_eq!((refusal.code().as_str(), refusal.header("set-cookie")), ("unauthorized", None));
        assert!(wrong.is_empty() || !refusal.text().contains(wrong), "{}", refusal.text());
    }
    for (bad, status) in [("", 400), ("tokens=x", 400), ("token=a&token=b", 400)] {
        let asked = ask("POST", "/login").header("content-type", "application/x-www-form-urlencoded");
        server.send(&asked.bytes(bad.as_bytes())).expect(status);
    }
    login(&server, &"x".repeat(5_000)).expect(413);
    server.send(&ask("POST", "/login").json(json!({ "token": WRITE }))).expect(415);
    server.get("/login").expect(405);
    // Browsers encode what a form sends, and people paste spaces with it.
    login(&server, "+%30123456789abcdef%0a").expect(204);
}

#[test]
fn wrong_logins_are_bounded_and_keep_no_right_one_out() {
    let server = server();
    let refused = (0..200).map(|_| login(&server, "wrong")).find(|answer| answer.status == 429);
    let refused = refused.expect("no login was refused for its pace");
    assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("too_many_logins", Some("2")));
    assert!((0..50).all(|_| login(&server, WRITE).status == 204));
}

#[test]
fn a_cookie_has_the_rights_of_its_token_and_changes_things_only_from_the_servers_own_page() {
    let server = server();
    let own = format!("http://{}", server.address);
    let (write, read) = (cookie(&login(&server, WRITE)), cookie(&login(&server, READ)));
    let begin = |cookie: &str| ask("POST", "/v1/sessions").header("cookie", cookie).json(json!({}));
    server.send(&begin(&write).header("origin", &own)).expect(201);
    server.send(&begin(&write).header("sec-fetch-site", "same-origin")).expect(201);
    assert_eq!(server.send(&begin(&read).header("origin", &own)).expect(403).code(), "forbidden");
    server.send(&ask("GET", "/v1/sessions").header("cookie", &read)).expect(200);
    // A program with a jar of cookies is not a page; a page of another port is not this server's.
    assert_eq!(server.send(&begin(&write)).expect(403).code(), "forbidden");
    server.send(&begin(&write).header("sec-fetch-site", "none")).expect(403);
    server.send(&begin(&write).header("origin", "http://127.0.0.1:1")).expect(403);
    server.send(&begin(&write).header("origin", &own).header("sec-fetch-site", "same-site")).expect(403);
    // A bearer header decides, also when it is wrong; another scheme is a proxy's.
    let bearer = |token: &str| format!("Bearer {token}");
    server.send(&begin(&read).header("authorization", &bearer(WRITE))).expect(201);
    server.send(&begin(&write).header("origin", &own).header("authorization", &bearer(READ))).expect(403);
    server.send(&begin(&write).header("origin", &own).header("authorization", &bearer("x"))).expect(401);
    server.send(&begin(&write).header("origin", &own).header("authorization", "Basic eDp5")).expect(201);
}

#[test]
fn a_configured_origin_may_not_use_the_cookie_of_the_servers_page() {
    let origin = "http://ui.example.org";
    let server = House::with(|options| {
        options.tokens = Tokens::parse(WRITE).unwrap();
        options.origins = vec![origin.to_owned()];
    });
    let cookie = cookie(&login(&server, WRITE));
    let asked = ask("POST", "/v1/sessions").header("cookie", &cookie).json(json!({}));
    server.send(&asked.clone().header("origin", origin)).expect(403);
    server.send(&asked.clone().header("origin", origin).header("sec-fetch-site", "same-site")).expect(403);
    // Of a proxy that calls the server by another name, the browser still says that the page is its own.
    server.send(&asked.header("origin", origin).header("sec-fetch-site", "same-origin")).expect(201);
}

#[test]
fn a_logout_clears_the_cookie() {
    let server = server();
    let answer = server.send(&ask("POST", "/logout").header("accept", "application/json")).expect(204);
    assert_eq!(answer.header("set-cookie"), Some("lastword=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"));
    let answer = server.send(&ask("POST", "/logout")).expect(303);
    assert_eq!(answer.header("location"), Some("/"));
    assert!(answer.header("set-cookie").unwrap().contains("Max-Age=0"));
}

#[test]
fn a_server_without_tokens_takes_any_login_and_needs_no_cookie() {
    let server = House::new();
    let answer = login(&server, "whatever").expect(204);
    assert_eq!(answer.header("set-cookie"), None);
    assert_eq!(server.send(&form("")).expect(303).header("location"), Some("/"));
}

#[test]
fn a_cookie_outlives_a_restart_and_ends_with_its_token() {
    let mut server = server();
    let (write, read) = (cookie(&login(&server, WRITE)), cookie(&login(&server, READ)));
    server.end();
    let again = House::with(|options| options.tokens = Tokens::parse(&format!("{WRITE} read-only")).unwrap());
    again.send(&ask("GET", "/v1/sessions").header("cookie", &write)).expect(200);
    again.send(&ask("GET", "/v1/sessions").header("cookie", &read)).expect(401);
    // The token may only read by now.
    let change = ask("POST", "/v1/sessions").header("cookie", &write).header("sec-fetch-site", "same-origin");
    again.send(&change.json(json!({}))).expect(403);
}
