//! Where a server is, and the HTTP client that goes there. Follows no redirect, which would carry the token elsewhere.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::ClientOptions;
use super::transport::innermost;

/// How often the system looks whether a silent peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The address of a server.
#[derive(Debug, Clone)]
pub(super) struct Address {
    url: Url,
    shown: String,
}

impl Address {
    /// No message repeats what was given, which may hold a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|cause| format!("the server's address is none: {cause}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("the server's address begins with {:?}, neither http nor https", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the server's address holds a user or a password: give a token instead".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("the server's address has something behind its path: leave that out".to_owned());
        }
        let shown = url.as_str().trim_end_matches('/').to_owned();
        Ok(Address { url, shown })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.shown
    }

    /// A place at the server.
    pub(super) fn at(&self, path: &[&str]) -> Url {
        let mut url = self.url.clone();
        url.path_segments_mut().expect("http has paths").pop_if_empty().extend(path);
        url
    }

    pub(super) fn client(&self, options: &ClientOptions) -> Result<reqwest::Client, String> {
        // If somebody else has chosen already, theirs is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(options.connect_within)
            .tcp_keepalive(KEEPALIVE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("lastword/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers(options)?);
        let client = if self.is_loopback() { client.no_proxy() } else { client };
        // Without TLS nobody needs the system's certificates, which take a while to read.
        let client = if self.url.scheme() == "http" { client.tls_certs_only([]) } else { client };
        client.build().map_err(|cause| {
            format!(
                "the HTTP client could not be made: {}. Are the system's certificates installed?",
                innermost(&cause)
            )
        })
    }

    /// Whether it is this machine's own: no proxy leads there.
    fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default();
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

fn headers(options: &ClientOptions) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    if let Some(token) = &options.token {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.as_str()))
            .map_err(|_| "the token holds characters that no header may hold".to_owned())?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_at_the_server_is_behind_its_own_path_and_cannot_leave_it() {
        let address = Address::parse("http://localhost:4437/base/").unwrap();
        assert_eq!(address.as_str(), "http://localhost:4437/base");
        let url = address.at(&["v1", "sessions", "a/b?c"]);
        assert_eq!(url.as_str(), "http://localhost:4437/base/v1/sessions/a%2Fb%3Fc");
    }

    #[test]
    fn an_address_that_is_none_or_holds_secrets_is_refused_without_being_repeated() {
        for bad in ["", "localhost:4437", "ftp://host", "http://user:s3cret@host/", "http://host/?key=s3cret"] {
            let refusal = Address::parse(bad).unwrap_err();
            assert!(!refusal.contains("s3cret"), "{refusal}");
        }
    }

    #[test]
    fn no_proxy_leads_to_this_machine() {
        for (address, own) in [("http://[::1]:1", true), ("http://127.0.0.2", true), ("http://localhost", true)] {
            assert_eq!(Address::parse(address).unwrap().is_loopback(), own);
        }
        assert!(!Address::parse("https://example.org").unwrap().is_loopback());
    }
}
