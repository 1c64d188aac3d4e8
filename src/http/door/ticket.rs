//! Tickets: permission to read one path and what is below it, for an hour, in the query of a URL. For `EventSource` and
//! `<img>`, which send no headers. Pure: the time and the tokens are arguments.

use axum::extract::Request;
use axum::http::Method;

use super::signed::{Purpose, Signed, SigningKey};
use crate::clock::Timestamp;
use crate::http::base_path::is_plain_segment;
use crate::http::token::{Access, Caller, Tokens};

/// How long a ticket holds.
const TICKET_SECONDS: i64 = 60 * 60;
/// Bytes of a ticket's path.
const PATH_BYTES_MAX: usize = 1_024;
/// Segments of a ticket's path.
const SEGMENTS_MAX: usize = 16;
/// The parameter of the query that carries a ticket.
pub(super) const PARAMETER: &str = "ticket";

/// A path of plain segments. Another spelling of the same path (percent-encoding, `..`, double slashes) is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct TicketPath<'a> {
    path: &'a str,
    depth: u8,
}

/// What a path for a ticket must look like.
pub(in crate::http) const PATH_RULE: &str = "the path of a ticket begins with / and has 1 to 16 segments of letters, digits, `-`, `_`, `.` \
                                             and `~` that are not `.` or `..`, as in /v1/sessions/ID/events: leave out its host and \
                                             its query";

impl<'a> TicketPath<'a> {
    pub(in crate::http) fn parse(path: &'a str) -> Option<Self> {
        let segments = path.strip_prefix('/')?.split('/');
        let depth = segments.clone().count();
        let fits = path.len() <= PATH_BYTES_MAX && depth <= SEGMENTS_MAX;
        let depth = u8::try_from(depth).ok().filter(|_| fits)?;
        segments.into_iter().all(is_plain_segment).then_some(TicketPath { path, depth })
    }

    /// The first segments of a request's path: all that a ticket of this depth can be for.
    fn covering(path: &'a str, depth: u8) -> Option<Self> {
        // A plain path is a bounded one, too: no id of ours is longer than these bounds allow.
        let whole = TicketPath::parse(path).filter(|whole| (1..=whole.depth).contains(&depth))?;
        let end = whole.path.match_indices('/').nth(usize::from(depth)).map_or(whole.path.len(), |(at, _)| at);
        Some(TicketPath { path: &whole.path[..end], depth })
    }
}

/// A ticket that was issued.
pub(in crate::http) struct Ticket {
    pub(in crate::http) text: String,
    pub(in crate::http) expires_at: Timestamp,
}

/// Issues a ticket for a path to a caller; none if its token was removed meanwhile. One of a server without tokens opens
/// nothing that is not open, and is void when there are tokens.
pub(in crate::http) fn issue(tokens: &Tokens, caller: Caller, path: TicketPath<'_>, now: Timestamp) -> Option<Ticket> {
    let expires_at = Timestamp::from_micros(now.micros() + TICKET_SECONDS * 1_000_000);
    let sign = |key: &SigningKey| key.sign(Purpose::Ticket, expires_at, path.depth, path.path);
    let text = match caller.token {
        Some(token) => sign(tokens.key_of(token)?),
        None => sign(&SigningKey::of("")),
    };
    Some(Ticket { text, expires_at })
}

/// The ticket of a request, if it has one and may use it: reading, once in the query.
pub(super) fn ticket_of(request: &Request) -> Option<String> {
    let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
    let query = request.uri().query().filter(|_| is_reading)?;
    let mut tickets = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == PARAMETER);
    let (first, second) = (tickets.next()?, tickets.next());
    // Two are as good as a void one.
    Some(if second.is_none() { first.1.into_owned() } else { String::new() })
}

/// The caller that a ticket stands for, on this path: who got it, and may only read.
pub(super) fn caller_by_ticket(tokens: &Tokens, ticket: &str, path: &str, now: Timestamp) -> Option<Caller> {
    let signed = Signed::parse(ticket)?;
    let covered = TicketPath::covering(path, signed.depth)?;
    let (token, key) = tokens.key_named(signed.key)?;
    key.confirms(&signed, Purpose::Ticket, covered.path, now)
        .then_some(Caller { access: Access::Read, token: Some(token) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";
    const PATH: &str = "/v1/sessions/a/runs/r";

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn issued(tokens: &Tokens, path: &str) -> Ticket {
        let caller = tokens.caller(SECRET).unwrap();
        issue(tokens, caller, TicketPath::parse(path).unwrap(), at(1000.0)).unwrap()
    }

    #[test]
    fn a_ticket_is_for_its_path_and_what_is_below_however_it_is_spelt_and_for_nothing_else() {
        let tokens = Tokens::parse(SECRET).unwrap();
        let ticket = issued(&tokens, PATH).text;
        let opens = |path: &str| caller_by_ticket(&tokens, &ticket, path, at(1001.0));
        for below in ["", "/events", "/events/more"] {
            let caller = opens(&format!("{PATH}{below}")).unwrap();
            assert_eq!((caller.access, caller.token), (Access::Read, tokens.caller(SECRET).unwrap().token));
        }
        for other in [
            "/v1/sessions/a/runs/r2",
            "/v1/sessions/a/runs/",
            "/v1/sessions/a/runs",
            "/v1/sessions/b/runs/r",
            "/",
            "",
            "/v1/sessions/a/runs/r/",
            "/v1/sessions/a/runs/r//events",
            "//v1/sessions/a/runs/r",
            "/v1/sessions/a/runs/r/../r2/events",
            "/v1/sessions/a/runs/r/..",
            "/v1/sessions/a/runs/r/./events",
            "/v1/sessions/a/runs/r/%2e%2e/r2",
            "/v1/sessions/a/runs/%72",
            "/v1/sessions/a/runs/r%2Fevents",
            "/v1/sessions/a/runs/r;x",
            "/V1/sessions/a/runs/r",
            "/x/v1/sessions/a/runs/r",
            "/v1/sessions/a/runs/r\\..\\r2",
            "/v1/sessions/a/runs/r%00",
        ] {
            assert_eq!(opens(other), None, "{other}");
        }
    }

    #[test]
    fn a_ticket_holds_for_an_hour_and_as_long_as_its_token() {
        let tokens = Tokens::parse(SECRET).unwrap();
        let Ticket { text, expires_at } = issued(&tokens, PATH);
        assert_eq!(expires_at, at(4600.0));
        assert!(caller_by_ticket(&tokens, &text, PATH, at(4599.9)).is_some());
        assert!(caller_by_ticket(&tokens, &text, PATH, at(4600.0)).is_none());
        let others = Tokens::parse("another-token-of-the-file").unwrap();
        assert!(caller_by_ticket(&others, &text, PATH, at(1001.0)).is_none());
        let caller = tokens.caller(SECRET).unwrap();
        assert!(issue(&others, caller, TicketPath::parse(PATH).unwrap(), at(0.0)).is_none(), "its token is gone");
        // What a server without tokens gave opens nothing when there are tokens.
        let path = TicketPath::parse(PATH).unwrap();
        let open = issue(&Tokens::default(), Caller::ANYONE, path, at(1000.0)).unwrap().text;
        assert!(caller_by_ticket(&tokens, &open, PATH, at(1001.0)).is_none());
    }

    #[test]
    fn a_path_of_a_ticket_is_plain_and_bounded() {
        let deep = |segments: usize| "/x".repeat(segments);
        for good in ["/v1", "/v1/events", "/api/chat/a/stream", "/v1/sessions/a/runs/.x/events", &deep(SEGMENTS_MAX)] {
            assert!(TicketPath::parse(good).is_some(), "{good}");
        }
        let long = format!("/{}", "x".repeat(PATH_BYTES_MAX));
        for bad in [
            "",
            "/",
            "v1",
            "//v1",
            "/v1/",
            "/v1//a",
            "/v1/..",
            "/v1/.",
            "/v1/%61",
            "/v1?x",
            "/v1#x",
            "/v1/a b",
            "http://host/v1",
            "/v1/\u{e9}",
            &deep(SEGMENTS_MAX + 1),
            &deep(300),
            &long,
        ] {
            assert!(TicketPath::parse(bad).is_none(), "{bad}");
        }
    }
}
