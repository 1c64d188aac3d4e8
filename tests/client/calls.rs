//! Every call: what is asked, what is made of the answer, and of refusals.

use lastword::client::{
    Change, Client, ClientError, ClientOptions, IfMatch, ListQuery, NewRun, RowsQuery, Token, UnreadableSession,
};
use lastword::{NewSession, SessionId, UserTurn};

use crate::journal::{run, session};
use crate::server::{Reply, Server, Step, answer, json, refuse, send};

fn with_etag(text: &str) -> Reply {
    let length = text.len();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"v1\"\r\nConnection: close\r\n";
    vec![send(&format!("{head}Content-Length: {length}\r\n\r\n{text}"))]
}

/// A server with one reply, and what it was asked.
async fn once<T, F: Future<Output = T>>(reply: Reply, call: impl FnOnce(Client) -> F) -> (T, Server) {
    let server = Server::start(vec![reply]).await;
    let done = call(server.client()).await;
    (done, server)
}

#[tokio::test]
async fn sessions_are_created_read_changed_and_deleted() {
    let new = NewSession { id: Some(session()), title: "A \"trip\"".to_owned() };
    let reply = json(201, r#"{"session_id":"s","title":"x"}"#);
    let (created, server) = once(reply, |client| async move { client.create_session(&new).await }).await;
    assert_eq!(created.unwrap().session, session());
    assert_eq!(server.asked(), ["POST /v1/sessions"]);
    assert_eq!(server.seen()[0].body, r#"{"title":"A \"trip\"","session_id":"s"}"#);
    assert_eq!(server.seen()[0].header("content-type"), Some("application/json"));

    let (read, server) = once(with_etag("{\n}\n"), |client| async move { client.session(&session()).await }).await;
    let read = read.unwrap();
    assert_eq!((read.text.as_str(), read.etag.as_deref()), ("{\n}\n", Some("\"v1\"")));
    assert_eq!(server.asked(), ["GET /v1/sessions/s"]);

    let not_modified = vec![send("HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n")];
    let ask = |client: Client| async move { client.session_if_changed(&session(), "\"v1\"").await };
    let (same, server) = once(not_modified, ask).await;
    assert_eq!(same.unwrap(), None);
    assert_eq!(server.seen()[0].header("if-none-match"), Some("\"v1\""));

    let (_, server) = once(json(200, "{}"), |client| async move { client.metadata(&session()).await.unwrap() }).await;
    assert_eq!(server.asked(), ["GET /v1/sessions/s?view=metadata"]);

    let query = RowsQuery { before: Some(40), limit: 20 };
    let (_, server) =
        once(json(200, "{}"), |client| async move { client.rows(&session(), query).await.unwrap() }).await;
    assert_eq!(server.asked(), ["GET /v1/sessions/s?limit=20&rows_before=40"]);

    let change = Change { title: Some("New".to_owned()), archived: Some(true), ..Change::default() };
    let etag = IfMatch::Etag("\"v1\"".to_owned());
    let patch = |client: Client| async move { client.patch(&session(), &change, &etag).await };
    let (refused, server) = once(refuse(412, "precondition_failed"), patch).await;
    assert_eq!(refused.unwrap_err().status(), Some(412));
    assert_eq!(server.seen()[0].header("if-match"), Some("\"v1\""));
    assert_eq!(server.seen()[0].body, r#"{"title":"New","archived":true}"#);

    let gone = vec![send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")];
    let (done, server) = once(gone, |client| async move { client.delete(&session(), &IfMatch::Any).await }).await;
    done.unwrap();
    assert_eq!((server.asked(), server.seen()[0].header("if-match")), (vec!["DELETE /v1/sessions/s".to_owned()], None));
}

#[tokio::test]
async fn a_page_of_the_list_may_hold_a_session_that_cannot_be_read() {
    let page = r#"{"sessions":[{"session_id":"a","title":"A"},{"session_id":"b","error":{"code":"corrupt_json","message":"damaged"}}],"next_cursor":"c 1"}"#;
    let query =
        ListQuery { limit: Some(2), text: Some("x&y".to_owned()), archived: Some(false), ..ListQuery::default() };
    let (page, server) = once(json(200, page), |client| async move { client.sessions(&query).await.unwrap() }).await;
    assert_eq!(server.asked(), ["GET /v1/sessions?limit=2&q=x%26y&archived=false"]);
    assert_eq!(page.next_cursor.as_deref(), Some("c 1"));
    assert_eq!(page.sessions[0].as_ref().unwrap().to_json(), r#"{"session_id":"a","title":"A"}"#);
    let [session, code, message] = ["b", "corrupt_json", "damaged"].map(str::to_owned);
    assert_eq!(page.sessions[1], Err(UnreadableSession { session, code, message }));
}

#[tokio::test]
async fn runs_are_begun_read_and_stopped() {
    let new = NewRun { turn: UserTurn::text("Hi").with_run(run()), runner: Some("demo".to_owned()) };
    let begin = |client: Client| async move { client.begin_run(&session(), &new).await.unwrap() };
    let (begun, server) = once(json(202, r#"{"run_id":"r"}"#), begin).await;
    assert_eq!(begun, run());
    assert_eq!(server.seen()[0].body, r#"{"message":"Hi","run_id":"r","runner":"demo"}"#);

    let stop = |client: Client| async move { client.stop(&session(), &run()).await };
    let (stopped, server) = once(json(200, r#"{"run_id":"r","stopped":false}"#), stop).await;
    assert!(!stopped.unwrap());
    assert_eq!(server.asked(), ["POST /v1/sessions/s/runs/r/stop"]);
    assert!(matches!(once(json(200, "{}"), stop).await.0, Err(ClientError::BadAnswer { .. })));

    let lines = answer(200, "application/x-ndjson", "{\"seq\":3}\n{\"seq\":4}\n");
    let events = |client: Client| async move {
        let mut lines = client.events(&session(), &run(), 2).await.unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().await? {
            all.push(line);
        }
        Ok::<_, ClientError>(all)
    };
    let (all, server) = once(lines, events).await;
    assert_eq!(all.unwrap(), ["{\"seq\":3}", "{\"seq\":4}"]);
    assert_eq!(server.asked(), ["GET /v1/sessions/s/runs/r/events?after=2"]);
    let (cut, _) = once(answer(200, "application/x-ndjson", "{\"seq\":3}\n{\"se"), events).await;
    assert!(matches!(cut, Err(ClientError::BrokenOff { .. })), "{cut:?}");

    let sessions = [session(), SessionId::parse("t").unwrap()];
    let check = |client: Client| async move { client.check(&sessions).await.unwrap() };
    let (report, server) = once(json(200, "{\"findings\":[]}"), check).await;
    assert_eq!(report, "{\"findings\":[]}");
    assert_eq!(server.asked(), ["GET /v1/check?session=s&session=t"]);
}

#[tokio::test]
async fn a_token_is_sent_and_shown_nowhere() {
    let token = Token::new("s3cret-token").unwrap();
    let options = ClientOptions { token: Some(token), ..ClientOptions::default() };
    let echo = json(401, r#"{"error":{"code":"unauthorized","message":"s3cret-token is no token"}}"#);
    let elsewhere = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nConnection: close\r\n\r\n";
    let server = Server::start(vec![echo, vec![send(elsewhere)]]).await;
    let client = server.client_with(options);
    let refused = client.metadata(&session()).await.unwrap_err();
    assert_eq!(server.seen()[0].header("authorization"), Some("Bearer s3cret-token"));
    assert!(refused.to_string().contains("(hidden) is no token"), "{refused}");
    let shown = format!("{client:?} {refused:?} {:?}", client.producer(&session(), &run(), 0));
    assert!(!shown.contains("s3cret"), "{shown}");
    let redirected = client.metadata(&session()).await.unwrap_err();
    assert_eq!(redirected.status(), Some(302), "a redirect is not followed");
}

#[tokio::test]
async fn an_error_says_what_was_attempted_where() {
    let ask = |client: Client| async move { client.session(&session()).await.unwrap_err().to_string() };
    let (refused, _) = once(refuse(404, "not_found"), ask).await;
    assert_eq!(refused, "could not read session s: because (HTTP 404, not_found)");
    let nobody = Server::nobody().await;
    let unreachable = ask(nobody.client()).await;
    assert!(unreachable.starts_with(&format!("could not read session s: {} could not be reached", nobody.base_url())));
    let cut =
        vec![send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"), Step::Reset];
    let (broken, _) = once(cut, ask).await;
    assert!(broken.contains("broke off") && broken.contains("look before you repeat it"), "{broken}");
    let (nonsense, _) = once(answer(200, "text/html", "<html>"), ask).await;
    assert!(nonsense.contains("was not understood"), "{nonsense}");
}
