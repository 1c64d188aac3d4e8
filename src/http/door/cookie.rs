//! The login cookie: written after a login, read by the guard. It holds a signed value, never the token.

use axum::http::{HeaderMap, header};

use super::signed::{Purpose, Signed};
use crate::clock::Timestamp;
use crate::http::token::{Caller, TokenId, Tokens};

/// Its name.
pub(super) const NAME: &str = "lastword";
/// How long a login lasts.
const LOGIN_SECONDS: u32 = 30 * 24 * 60 * 60;
/// Cookies of that name that are tried: a browser sends those of other paths, too.
const TRIED_MAX: usize = 4;

/// The `Set-Cookie` of a login with this token; none if the token was removed meanwhile.
pub(in crate::http) fn login_cookie(
    tokens: &Tokens,
    token: TokenId,
    path: &str,
    is_https: bool,
    now: Timestamp,
) -> Option<String> {
    let expires_at = Timestamp::from_micros(now.micros() + i64::from(LOGIN_SECONDS) * 1_000_000);
    let value = tokens.key_of(token)?.sign(Purpose::Cookie, expires_at, 0, "");
    Some(set_cookie(&value, path, LOGIN_SECONDS, is_https))
}

/// The `Set-Cookie` that ends a login in this browser.
pub(in crate::http) fn cleared_cookie(path: &str, is_https: bool) -> String {
    set_cookie("", path, 0, is_https)
}

fn set_cookie(value: &str, path: &str, max_age: u32, is_https: bool) -> String {
    let secure = if is_https { "; Secure" } else { "" };
    format!("{NAME}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}")
}

/// The caller whose cookie a request brings.
pub(super) fn caller_by_cookie(tokens: &Tokens, headers: &HeaderMap, now: Timestamp) -> Option<Caller> {
    values(headers).take(TRIED_MAX).find_map(|value| {
        let signed = Signed::parse(value)?;
        let (token, key) = tokens.key_named(signed.key)?;
        let access = tokens.access_of(token).filter(|_| key.confirms(&signed, Purpose::Cookie, "", now))?;
        Some(Caller { access, token: Some(token) })
    })
}

/// The values of all cookies of our name.
fn values(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == NAME).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Access;

    const SECRET: &str = "0123456789abcdef";

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn caller(tokens: &Tokens, cookies: &str, now: f64) -> Option<Access> {
        let headers = HeaderMap::from_iter([(header::COOKIE, cookies.parse().unwrap())]);
        caller_by_cookie(tokens, &headers, at(now)).map(|caller| caller.access)
    }

    #[test]
    fn a_cookie_gives_the_rights_that_its_token_has_now_for_thirty_days() {
        let tokens = Tokens::parse(SECRET).unwrap();
        let token = tokens.caller(SECRET).unwrap().token.unwrap();
        let set = login_cookie(&tokens, token, "/chat", true, at(1000.0)).unwrap();
        let (pair, attributes) = set.split_once("; ").unwrap();
        assert_eq!(attributes, "Path=/chat; Max-Age=2592000; HttpOnly; SameSite=Strict; Secure");
        assert!(!set.contains(SECRET));
        let end = 1000.0 + f64::from(LOGIN_SECONDS);
        assert_eq!(caller(&tokens, pair, end - 1.0), Some(Access::Write));
        assert_eq!(caller(&tokens, pair, end), None);
        assert_eq!(caller(&tokens, &format!("a=b; lastword=x; {pair}"), end - 1.0), Some(Access::Write));
        for other in ["lastword=", "lastword", &pair.replace("lastword", "Lastword"), &format!("{pair}A")] {
            assert_eq!(caller(&tokens, other, end - 1.0), None, "{other}");
        }
        let downgraded = Tokens::parse(&format!("{SECRET} read-only")).unwrap();
        assert_eq!(caller(&downgraded, pair, end - 1.0), Some(Access::Read));
        let removed = Tokens::parse("another-token-of-the-file").unwrap();
        assert_eq!(caller(&removed, pair, end - 1.0), None);
        assert_eq!(login_cookie(&removed, token, "/", false, at(0.0)), None);
    }
}
