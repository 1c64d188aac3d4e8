//! The server at a base path, through a real proxy that takes the prefix off and through one that does not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use lastword::client::{Client, ClientOptions, FollowOptions, NewRun, Patience};
use lastword::http::{BasePath, Tokens};
use lastword::{NewSession, RunId, SessionId, UserTurn};
use serde_json::{Value, json};

use crate::house::{DONE, House};
use crate::wire::{Answer, Ask, ask};

const TOKEN: &str = "0123456789abcdef";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Proxy {
    /// `/chat/v1` becomes `/v1`.
    Strips,
    Keeps,
}

const BOTH: [Proxy; 2] = [Proxy::Strips, Proxy::Keeps];

/// A server at `/chat`, and the address of a proxy that offers only that.
fn offered(proxy: Proxy, tokens: &str) -> (House, SocketAddr) {
    let server = House::with(|options| {
        options.base_path = BasePath::parse("/chat/").unwrap();
        options.tokens = Tokens::parse(tokens).unwrap_or_default();
    });
    let (listener, upstream) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.address);
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // A client that hangs up is not this proxy's business.
            thread::spawn(move || pass_on(client, upstream, proxy).ok());
        }
    });
    (server, address)
}

/// Passes on one request of a connection, byte by byte after its head.
fn pass_on(mut client: TcpStream, upstream: SocketAddr, proxy: Proxy) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.splitn(3, ' ').map(str::to_owned);
    let (Some(method), Some(path), Some(version)) = (words.next(), words.next(), words.next()) else { return Ok(()) };
    if !(path == "/chat" || path.starts_with("/chat/") || path.starts_with("/chat?")) {
        return client.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    let path = match proxy {
        Proxy::Strips => path.strip_prefix("/chat").filter(|rest| !rest.is_empty()).unwrap_or("/").to_owned(),
        Proxy::Keeps => path,
    };
    let mut server = TcpStream::connect(upstream)?;
    write!(server, "{method} {path} {version}connection: close\r\n")?;
    let mut sending = server.try_clone()?;
    thread::spawn(move || std::io::copy(&mut reader, &mut sending).ok());
    let mut piece = [0; 4096];
    loop {
        match server.read(&mut piece)? {
            0 => return client.shutdown(std::net::Shutdown::Both),
            read => client.write_all(&piece[..read])?,
        }
    }
}

#[track_caller]
fn send(address: SocketAddr, ask: &Ask) -> Answer {
    ask.open(address).whole()
}

#[test]
fn every_address_that_the_server_writes_carries_the_prefix() {
    for proxy in BOTH {
        let (server, address) = offered(proxy, "");
        let get = |path: &str| send(address, &ask("GET", path));
        let post = |path: &str, body: Value| send(address, &ask("POST", path).json(body));
        let page = get("/chat/").expect(200);
        assert!(page.header("content-type").unwrap().starts_with("text/html"), "{proxy:?}");
        assert_eq!(get("/chat/page.js").expect(200).header("content-type"), Some("text/javascript; charset=utf-8"));
        let created = post("/chat/v1/sessions", json!({ "session_id": "a" })).expect(201);
        assert_eq!(created.header("location"), Some("/chat/v1/sessions/a"), "{proxy:?}");
        get(created.header("location").unwrap()).expect(200);

        let upload = ask("POST", "/chat/v1/sessions/a/attachments?filename=a.png").header("content-type", "image/png");
        let file = send(address, &upload.bytes(PNG)).expect(201).header("location").unwrap().to_owned();
        assert!(file.starts_with("/chat/v1/sessions/a/attachments/sha256-"), "{file}");
        assert_eq!(get(&file).expect(200).body, PNG);

        // Both forms name the file, in a turn and in a chat.
        let own = file.strip_prefix("/chat").unwrap();
        let parts = [&file, own].map(|url| json!({ "type": "file", "mediaType": "image/png", "url": url }));
        let turn = json!({ "message": "Look!", "run_id": "r", "attachments": parts });
        let begun = post("/chat/v1/sessions/a/runs", turn).expect(202);
        let events = begun.header("location").unwrap();
        assert_eq!(events, "/chat/v1/sessions/a/runs/r/events");
        let attachment = own.rsplit('/').next().unwrap();
        let said = json!({ "event": "file", "payload": { "media_type": "image/png", "attachment": attachment } });
        send(address, &ask("POST", events).lines(&format!("{said}\n{DONE}"))).expect(200);
        let streamed = get("/chat/api/chat/a/stream?run=r").expect(200);
        assert!(streamed.text().contains(&format!("\"url\":\"{file}\"")), "{proxy:?}: {}", streamed.text());
        let messages = get("/chat/api/chat/a/messages").expect(200).json();
        let urls = messages.as_array().unwrap().iter().flat_map(|message| message["parts"].as_array().unwrap());
        let urls: Vec<&str> = urls.filter_map(|part| part["url"].as_str()).collect();
        assert_eq!(urls, [&file, &file, &file], "{proxy:?}: {messages}");
        let message = json!({ "id": "m1", "role": "user", "parts": parts });
        post("/chat/api/chat", json!({ "id": "a", "messages": [message], "trigger": "submit-message" })).expect(200);

        let described = get("/chat/openapi.json").expect(200).json();
        assert_eq!(described["servers"][0]["url"], "/chat");
        // Beside the proxy, the server is where it always is.
        server.get("/v1/sessions/a").expect(200);
        server.get("/chat/v1/sessions/a").expect(200);
        server.get("/chat/chat/v1/sessions/a").expect(404);
        server.get("/chats/v1/sessions/a").expect(404);
    }
    assert_eq!(House::new().get("/openapi.json").json()["servers"][0]["url"], "/");
}

#[test]
fn the_page_is_led_to_the_address_that_its_own_addresses_are_relative_to() {
    let (server, address) = offered(Proxy::Keeps, TOKEN);
    let led = send(address, &ask("GET", "/chat?login=wrong")).expect(307);
    assert_eq!(led.header("location"), Some("/chat/?login=wrong"));
    assert!(led.header("content-security-policy").is_some() && led.header("x-request-id").is_some());
    assert_eq!(send(address, &ask("GET", "/chat")).expect(307).header("location"), Some("/chat/"));
    // A link of another site leads there, too; anything else of another site does not.
    let foreign = |path: &str| ask("GET", path).header("sec-fetch-site", "cross-site");
    send(address, &foreign("/chat")).expect(307);
    send(address, &foreign("/chat/")).expect(200);
    send(address, &foreign("/chat/v1/sessions")).expect(403);
    server.send(&ask("GET", "/chat").header("host", "evil.example.org")).expect(403);
    server.get("/chat/v1/sessions").expect(401);
}

#[test]
fn logins_and_tickets_hold_with_the_prefix_and_without_it() {
    for proxy in BOTH {
        let (_server, address) = offered(proxy, TOKEN);
        let form = |token: &str| {
            let form = ask("POST", "/chat/login").header("content-type", "application/x-www-form-urlencoded");
            send(address, &form.bytes(format!("token={token}").as_bytes())).expect(303)
        };
        assert_eq!(form("wrong").header("location"), Some("/chat/?login=wrong"), "{proxy:?}");
        let right = form(TOKEN);
        assert_eq!(right.header("location"), Some("/chat/"));
        let cookie = right.header("set-cookie").unwrap();
        assert!(cookie.contains("; Path=/chat;"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap();
        send(address, &ask("GET", "/chat/v1/sessions").header("cookie", cookie)).expect(200);
        let gone = send(address, &ask("POST", "/chat/logout")).expect(303);
        assert!(gone.header("set-cookie").unwrap().contains("; Path=/chat; Max-Age=0"));

        for path in ["/chat/v1/sessions", "/v1/sessions"] {
            let asked = ask("POST", "/chat/v1/tickets").header("authorization", &format!("Bearer {TOKEN}"));
            let issued = send(address, &asked.json(json!({ "path": path }))).expect(201).json();
            let ticket = issued["ticket"].as_str().unwrap();
            send(address, &ask("GET", &format!("/chat/v1/sessions?ticket={ticket}"))).expect(200);
            send(address, &ask("GET", &format!("/chat/metrics?ticket={ticket}"))).expect(401);
            send(address, &ask("GET", &format!("/chat/v1/sessions/../../chat/metrics?ticket={ticket}"))).expect(401);
        }
    }
}

#[test]
fn the_client_and_the_command_line_go_through_the_proxy() {
    for proxy in BOTH {
        let (server, address) = offered(proxy, "");
        for url in [format!("http://{address}/chat"), format!("http://{address}/chat/")] {
            let client = Client::new(&url, ClientOptions::default()).unwrap();
            let (session, run) = (SessionId::parse(&format!("s{}", url.len())).unwrap(), RunId::parse("r").unwrap());
            server.block_on(async {
                client.is_ready().await.unwrap();
                let new = NewSession { id: Some(session.clone()), title: String::new() };
                client.create_session(&new).await.unwrap();
                let turn = UserTurn::text("Where to?").with_run(run.clone());
                client.begin_run(&session, &NewRun { turn, runner: None }).await.unwrap();
                let mut producer = client.producer(&session, &run, 0);
                producer.append(lastword::client::EventBatch::of_lines(DONE)).await.unwrap();
                let options = FollowOptions { patience: Patience::none() };
                let mut follow = client.follow(&session, &run, 0, options);
                assert!(follow.next().await.unwrap().is_some());
                client.session(&session).await.unwrap();
            });
            let listed = Command::new(env!("CARGO_BIN_EXE_lastword"))
                .args(["--server", &url, "ls", "--json"])
                .env_remove("LASTWORD_SERVER_TOKEN_FILE")
                .output()
                .unwrap();
            assert!(String::from_utf8_lossy(&listed.stdout).contains(session.as_str()), "{proxy:?} {url} {listed:?}");
        }
        let nowhere = Client::new(&format!("http://{address}"), ClientOptions::default()).unwrap();
        assert!(server.block_on(nowhere.is_ready()).is_err(), "the proxy offers nothing else");
    }
}
