//! What one client leaves to the others: connections of an address, requests of a token.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use lastword::http::{ServerOptions, Tokens};

use crate::house::House;
use crate::wire::{Ask, Coming, ask};

const WRITE: &str = "0123456789abcdef";
const READ: &str = "fedcba9876543210";
const OTHER_READ: &str = "aaaaaaaaaaaaaaaa";

fn follow() -> Ask {
    ask("GET", "/v1/sessions/a/runs/r/events").header("accept", "text/event-stream")
}

/// Tries until a request is let in.
#[track_caller]
fn opens(house: &House, request: &Ask) -> Coming {
    let mut tries = (0..500).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        request.open(house.address)
    });
    tries.find(|coming| coming.status == 200).expect("the place of a client that left is lost")
}

fn behind_a_proxy(change: impl FnOnce(&mut ServerOptions)) -> House {
    let house = House::with(|options| {
        options.connections_max = 64;
        options.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
        change(options);
    });
    house.run("a", "r");
    house
}

fn of_client(request: Ask, client: &str) -> Ask {
    request.header("x-forwarded-for", client)
}

#[test]
fn streams_of_one_address_leave_places_to_other_addresses() {
    let house = behind_a_proxy(|_| {});
    let follow = |client: &str| of_client(follow(), client);
    let mut held: Vec<_> =
        (0..8).map(|nth| follow(&format!("203.0.113.{nth}, 192.0.2.1")).open(house.address)).collect();
    assert!(held.iter().all(|coming| coming.status == 200));
    for again in ["192.0.2.1", "::ffff:192.0.2.1", "9.9.9.9,192.0.2.1, 127.0.0.1"] {
        let refusal = follow(again).open(house.address).whole();
        assert_eq!((refusal.status, refusal.code().as_str()), (429, "too_many_connections"), "{again}");
        assert_eq!(refusal.header("retry-after"), Some("2"));
    }
    house.send(&of_client(ask("GET", "/v1/sessions/a"), "192.0.2.1")).expect(429);
    let chat = house.send(&of_client(ask("GET", "/api/chat/a/messages"), "192.0.2.1")).expect(429);
    assert_eq!(chat.header("lastword-error"), Some("too_many_connections"));
    house.send(&of_client(ask("GET", "/v1/sessions/a"), "192.0.2.2")).expect(200);
    house.send(&of_client(ask("GET", "/v1/sessions/a"), "2001:db8::1")).expect(200);
    // What no client is named for counts as one of its own.
    house.send(&ask("GET", "/v1/sessions/a")).expect(200);
    held.pop();
    opens(&house, &follow("192.0.2.1"));
}

#[test]
fn addresses_of_one_network_of_the_sixth_version_are_one_client() {
    let house = behind_a_proxy(|options| options.connections_per_address_max = Some(2));
    let _held = ["2001:db8::1", "2001:db8::2"].map(|client| opens(&house, &of_client(follow(), client)));
    house.send(&of_client(ask("GET", "/v1/sessions/a"), "[2001:db8::3]:443")).expect(429);
    house.send(&of_client(ask("GET", "/v1/sessions/a"), "2001:db8:0:1::1")).expect(200);
}

#[test]
fn requests_that_end_give_their_place_back_whatever_they_answer() {
    let house = behind_a_proxy(|options| options.connections_per_address_max = Some(1));
    for path in ["/v1/sessions/a", "/v1/sessions/nothing", "/healthz", "/v1/sessions", "/page.js"] {
        for _ in 0..3 {
            let ask = of_client(ask("GET", path), "192.0.2.1").header("accept-encoding", "gzip");
            let answer = house.send(&ask);
            assert_ne!(answer.status, 429, "{path}");
        }
    }
}

#[test]
fn a_header_that_no_trusted_proxy_sent_changes_nothing() {
    let house = House::with(|options| options.connections_per_address_max = Some(1));
    house.run("a", "r");
    let held: Vec<_> = (0..4).map(|_| of_client(follow(), "192.0.2.1").open(house.address)).collect();
    assert!(held.iter().all(|coming| coming.status == 200), "loopback has no bound, and its word is not taken");
}

#[test]
fn one_token_has_half_of_the_places_and_so_have_all_that_only_read() {
    let house = House::with(|options| {
        options.connections_max = 8;
        let tokens = format!("{WRITE}\n{READ} read-only\n{OTHER_READ} read-only\n");
        options.tokens = Tokens::parse(&tokens).unwrap();
    });
    let with = |request: Ask, token: &str| request.header("authorization", &format!("Bearer {token}"));
    let follow = |token| with(ask("GET", "/v1/events").header("accept", "text/event-stream"), token);
    let list = |token| with(ask("GET", "/v1/sessions"), token);
    let mut held: Vec<_> = [READ, READ, READ, OTHER_READ].map(|token| follow(token).open(house.address)).into();
    assert!(held.iter().all(|coming| coming.status == 200));
    for token in [READ, OTHER_READ] {
        assert_eq!(house.send(&list(token)).expect(429).code(), "too_many_connections");
    }
    house.send(&list(WRITE)).expect(200);
    held.clear();
    let mut held: Vec<_> = (0..4).map(|_| opens(&house, &follow(WRITE))).collect();
    house.send(&list(WRITE)).expect(429);
    house.send(&list(READ)).expect(200);
    house.get("/healthz").expect(200);
    held.pop();
    opens(&house, &follow(WRITE));
}

/// A network of its own for the other end, with an address that is not a loopback one, and a machine that can vanish.
struct Network {
    name: String,
    outer: String,
    address: String,
}

fn ip(arguments: &str) -> bool {
    let ended = Command::new("ip").args(arguments.split_whitespace()).output();
    ended.is_ok_and(|ended| ended.status.success())
}

impl Network {
    /// None where this user may not make networks: then the tests of `forwarded`, `peers` and `socket` speak for the parts.
    fn new(nth: u8) -> Option<Self> {
        let name = format!("lw{}-{nth}", std::process::id());
        let third = std::process::id() % 250;
        let network = Network { outer: format!("{name}o"), address: format!("10.213.{third}.{nth}"), name };
        let Network { name, outer, .. } = &network;
        let steps = [
            format!("netns add {name}"),
            format!("link add {outer} type veth peer name eth0 netns {name}"),
            format!("addr add {}/31 dev {outer}", network.address),
            format!("link set {outer} up"),
            format!("-n {name} addr add 10.213.{third}.{}/31 dev eth0", nth + 1),
            format!("-n {name} link set eth0 up"),
        ];
        steps.iter().all(|step| ip(step)).then_some(network)
    }

    /// A shell in the network that does this with the server on descriptor 3.
    fn connect(&self, house: &House, script: &str) -> std::process::Child {
        let open = format!("exec 3<>/dev/tcp/{}/{} && {script}", self.address, house.address.port());
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "bash", "-c", &open]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&format!("link del {}", self.outer));
        ip(&format!("netns del {}", self.name));
    }
}

/// A server that other machines can reach.
fn open_house(change: impl FnOnce(&mut ServerOptions)) -> House {
    House::with(|options| {
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.tokens = Tokens::parse(WRITE).unwrap();
        change(options);
    })
}

fn connections(house: &House) -> String {
    // The server listens on every address; this one is always there.
    let request = ask("GET", "/metrics").header("authorization", &format!("Bearer {WRITE}"));
    let text = request.send(([127, 0, 0, 1], house.address.port()).into()).expect(200).text().to_owned();
    text.lines().find(|line| line.starts_with("lastword_http_connections ")).unwrap().to_owned()
}

#[track_caller]
fn await_connections(house: &House, count: usize) {
    let begun = Instant::now();
    while connections(house) != format!("lastword_http_connections {count}") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", connections(house));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connections_of_another_machine_are_bounded_and_answered() {
    let Some(network) = Network::new(2) else { return };
    let house = open_house(|options| options.connections_per_address_max = Some(2));
    let mut held: Vec<_> = (0..2).map(|_| network.connect(&house, "echo up; sleep 30")).collect();
    for held in &mut held {
        let mut up = [0; 3];
        held.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    }
    // Both have their places, beside the connection that asks.
    await_connections(&house, 3);
    let refused =
        network.connect(&house, "printf 'GET /healthz HTTP/1.1\\r\\nhost: 10.0.0.1\\r\\n\\r\\n' >&3; cat <&3");
    let said = String::from_utf8(refused.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{said}");
    assert!(said.contains("\r\nretry-after: 2\r\n") && said.contains("\"too_many_connections\""), "{said}");
    for mut held in held {
        held.kill().unwrap();
        held.wait().unwrap();
    }
}

/// A session of this many bytes, in rows of 1 MiB.
fn lay_large(house: &House, id: &str, rows: usize) {
    let row = format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(1 << 20));
    let rows = vec![row; rows].join(",");
    std::fs::write(house.data().join(format!("{id}.json")), format!(r#"{{"session_id":"{id}","messages":[{rows}]}}"#))
        .unwrap();
}

/// What a connection has taken and not sent is in memory still, and so is the place of its request.
#[test]
fn answers_that_are_not_read_count_until_they_are_sent_or_dropped() {
    let house = House::with(|options| {
        options.connections_max = 16;
        options.tokens = Tokens::parse(WRITE).unwrap();
    });
    lay_large(&house, "big", 40);
    let get = |path: &str| ask("GET", path).header("authorization", &format!("Bearer {WRITE}"));
    let held: Vec<_> = (0..3).map(|_| get("/v1/sessions/big?limit=100").open(house.address)).collect();
    assert!(held.iter().all(|coming| coming.status == 200));
    let refused = house.send(&get("/v1/sessions/big?limit=100")).expect(503);
    assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("too_many_answers", Some("2")));
    assert_eq!(
        house.send(&get("/api/chat/big/messages")).expect(503).header("lastword-error"),
        Some("too_many_answers")
    );
    house.send(&get("/v1/sessions/big?limit=1")).expect(200);
    // The whole session is shared, and takes nothing but the places of its requests.
    let mut whole: Vec<_> = (0..5).map(|_| get("/v1/sessions/big").open(house.address)).collect();
    assert!(whole.iter().all(|coming| coming.status == 200));
    assert_eq!(house.send(&get("/v1/sessions")).expect(429).code(), "too_many_connections");
    whole.clear();
    drop(held);
    opens(&house, &get("/v1/sessions/big?limit=100"));
}

/// The answers to those that are refused wait for nothing that others need.
#[test]
fn a_flood_from_one_machine_keeps_no_other_out() {
    let Some(network) = Network::new(6) else { return };
    let house = open_house(|options| {
        options.connections_max = 64;
        options.connections_per_address_max = Some(1);
    });
    let again = format!("exec {{more}}<>/dev/tcp/{}/{}", network.address, house.address.port());
    let mut flood = network.connect(&house, &format!("for nth in $(seq 120); do {again}; done; echo up; sleep 30"));
    let mut up = [0; 3];
    flood.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let begun = Instant::now();
    ask("GET", "/healthz").send(([127, 0, 0, 1], house.address.port()).into()).expect(200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    flood.kill().unwrap();
    flood.wait().unwrap();
}

#[test]
fn a_follower_whose_machine_is_gone_frees_its_place() {
    let Some(network) = Network::new(4) else { return };
    let house = open_house(|options| {
        options.write_timeout = Duration::from_secs(5);
        options.heartbeat = Duration::from_secs(1);
    });
    let request = format!(
        "GET /v1/events HTTP/1.1\\r\\nhost: 10.0.0.1\\r\\nauthorization: Bearer {WRITE}\\r\\naccept: text/event-stream\\r\\n\\r\\n"
    );
    let mut follower = network.connect(&house, &format!("printf '{request}' >&3; cat <&3"));
    let mut head = [0; 15];
    follower.stdout.as_mut().unwrap().read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    await_connections(&house, 2);
    // Nothing goes through any more, and no word is said about it.
    assert!(ip(&format!("-n {} link set eth0 down", network.name)));
    let begun = Instant::now();
    await_connections(&house, 1);
    assert!(begun.elapsed() > Duration::from_secs(2), "it was not given its time");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_connection_that_finds_no_place_in_time_is_told_so() {
    let house = House::with(|options| {
        options.connections_max = 1;
        options.head_timeout = Duration::from_secs(60);
    });
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // It has the place once it is answered, and keeps it.
    let mut held = TcpStream::connect(house.address).unwrap();
    held.write_all(request).unwrap();
    held.read_exact(&mut [0; 15]).unwrap();
    let mut waiting = TcpStream::connect(house.address).unwrap();
    waiting.write_all(request).unwrap();
    waiting.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut said = String::new();
    waiting.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{said}");
    assert!(said.contains("\r\nretry-after: 2\r\n") && said.contains("\"too_many_connections\""), "{said}");
}
