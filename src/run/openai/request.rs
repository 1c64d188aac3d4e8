//! What is asked of an endpoint, and how: the address, the headers with their secrets, the body, the client.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use super::key::Secrets;
use super::refusal::Refusal;
use super::{OpenAiRunner, innermost};
use crate::model::{ContextMessage, Object};
use crate::run::runner::Prompt;

/// The key that asks for the usage of a streamed answer. Not every endpoint knows it.
const STREAM_OPTIONS: &str = "stream_options";

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where completions are asked for. What is behind a question mark stays there. No message repeats the address, which may
/// hold a password.
pub(super) fn address(base_url: &str) -> Result<Url, String> {
    let mut url = Url::parse(base_url).map_err(|cause| format!("`base_url` is no address: {cause}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`base_url` begins with {:?}, neither http nor https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("`base_url` holds a user or a password: give a key or a header instead".to_owned());
    }
    match url.path_segments_mut() {
        Ok(mut path) => path.pop_if_empty().extend(["chat", "completions"]),
        Err(()) => return Err("`base_url` is no address that a path can be added to".to_owned()),
    };
    Ok(url)
}

/// A client that follows no redirects, which would carry the key elsewhere.
pub(super) fn client(address: &Url) -> Result<Client, String> {
    // If somebody else has chosen already, theirs is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(reqwest::redirect::Policy::none());
    let client = client.user_agent(concat!("lastword/", env!("CARGO_PKG_VERSION")));
    let client = if is_loopback(address) { client.no_proxy() } else { client };
    client.build().map_err(|cause| {
        format!("The HTTP client could not be made: {}. Are the system's certificates installed?", innermost(&cause))
    })
}

/// Whether an address is this machine's own: no proxy leads there.
fn is_loopback(address: &Url) -> bool {
    let host = address.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// A header whose value is shown nowhere.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let bad = || format!("the header {name:?} cannot be sent");
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
    let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok((name, value))
}

impl OpenAiRunner {
    /// Reads the key, and the headers that the environment holds.
    pub(super) fn secrets(&self) -> Result<Secrets, String> {
        let read = |(name, variable): &(String, String)| {
            let value = std::env::var(variable)
                .map_err(|_| format!("The variable {variable}, which should hold the header {name:?}, is not set"))?;
            Ok((name.clone(), value.trim().to_owned()))
        };
        let headers = self.headers_env.iter().map(read).chain(self.headers.iter().cloned().map(Ok));
        let headers = headers.collect::<Result<_, String>>()?;
        let asked = self.address.query_pairs().map(|(_, value)| value.into_owned()).collect();
        Ok(Secrets { key: self.key.read()?, headers, asked })
    }

    pub(super) fn headers_of_request(&self, secrets: &Secrets) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = &secrets.key {
            let bearer = header(AUTHORIZATION.as_str(), &format!("Bearer {key}"));
            let (name, value) = bearer.map_err(|_| "The key holds characters that no header may hold".to_owned())?;
            headers.insert(name, value);
        }
        for (name, value) in &secrets.headers {
            let (name, value) = header(name, value)?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(super) fn request_body(&self, prompt: Prompt) -> String {
        let mut context = prompt.context;
        let has_system = matches!(context.messages.first(), Some(ContextMessage::System { .. }));
        if let (Some(text), false) = (&self.system, has_system) {
            context.messages.insert(0, ContextMessage::System { text: text.clone() });
        }
        if !self.attachments {
            context.messages.iter_mut().for_each(leave_out_attachments);
        }
        let mut body = Object::default();
        body.set_text("model", &self.model);
        body.set("stream", "true");
        if self.asks_for_usage() {
            body.set(STREAM_OPTIONS, r#"{"include_usage":true}"#);
        }
        for (key, value) in Object::parse(&self.body).unwrap_or_default().iter() {
            body.set(key, value);
        }
        body.set("messages", context.to_json());
        body.to_json()
    }

    /// Whether the request holds `stream_options` of ours: they may be switched off, and the endpoint may have refused them.
    fn asks_for_usage(&self) -> bool {
        self.stream_options && !self.endpoint_refuses_options.load(Ordering::Relaxed)
    }

    /// Whether a request was refused because of `stream_options` that the configuration does not want itself.
    pub(super) fn may_leave_out_options(&self, refusal: &Refusal) -> bool {
        let is_configured = Object::parse(&self.body).is_some_and(|body| body.get(STREAM_OPTIONS).is_some());
        self.asks_for_usage() && !is_configured && refusal.is_about(STREAM_OPTIONS)
    }
}

fn leave_out_attachments(message: &mut ContextMessage) {
    if let ContextMessage::User { attachments, .. } = message {
        attachments.clear();
    }
}

/// The same request without `stream_options`.
pub(super) fn without_options(body: &[u8]) -> Option<String> {
    let mut body = Object::parse(std::str::from_utf8(body).ok()?)?;
    body.remove(STREAM_OPTIONS);
    Some(body.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_ends_in_completions_and_keeps_what_is_asked_behind_it() {
        let address = |base_url| address(base_url).unwrap().to_string();
        assert_eq!(address("http://localhost:8080/v1"), "http://localhost:8080/v1/chat/completions");
        assert_eq!(address("http://localhost:8080/v1/"), "http://localhost:8080/v1/chat/completions");
        assert_eq!(address("https://x/o/d?api-version=1"), "https://x/o/d/chat/completions?api-version=1");
    }

    #[test]
    fn no_refusal_of_an_address_repeats_it() {
        for base_url in ["ftp://user:secret@x/", "http://user:secret@x:99999/", "http://user:secret@x/", "secret"] {
            assert!(!address(base_url).unwrap_err().contains("secret"), "{base_url}");
        }
    }

    #[test]
    fn this_machine_is_reached_without_a_proxy() {
        let is_near = |url| is_loopback(&Url::parse(url).unwrap());
        assert!(is_near("http://127.0.0.1:1/") && is_near("http://localhost/") && is_near("http://[::1]:8/"));
        assert!(!is_near("http://example.com/") && !is_near("http://10.0.0.1/"));
    }
}
