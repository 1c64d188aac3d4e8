//! A request and its answer: sent, watched for silence, read within bounds, and refusals put into words.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, ETAG, HeaderName, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};

use super::wait::within;
use super::{Client, ClientError};
use crate::limits::{RECORD_BYTES_MAX, SIDECAR_BYTES_MAX};
use crate::model::Object;

/// Something to be asked.
pub(super) struct Request {
    builder: RequestBuilder,
    asked: Asked,
    /// How long the answer may take to begin.
    begins_within: Option<Duration>,
}

/// What was asked, of whom.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    client: Client,
    attempt: String,
}

/// What was answered.
pub(super) struct Answer {
    response: Response,
    asked: Asked,
}

impl Client {
    /// A request for a place at the server. The attempt is what an error will say could not be done.
    pub(super) fn request(&self, method: Method, path: &[&str], attempt: impl Into<String>) -> Request {
        self.request_at(method, self.place(path), attempt)
    }

    pub(super) fn place(&self, path: &[&str]) -> Url {
        self.inner.address.at(path)
    }

    pub(super) fn request_at(&self, method: Method, url: Url, attempt: impl Into<String>) -> Request {
        let asked = Asked { client: self.clone(), attempt: attempt.into() };
        let begins_within = Some(self.inner.options.silence_max);
        Request { builder: self.inner.http.request(method, url), asked, begins_within }
    }
}

impl Request {
    pub(super) fn header(self, name: HeaderName, value: &str) -> Self {
        Request { builder: self.builder.header(name, value), ..self }
    }

    /// Lets the server take its time before it answers.
    pub(super) fn unhurried(self) -> Self {
        Request { begins_within: None, ..self }
    }

    pub(super) fn body(self, kind: &'static str, text: String) -> Self {
        let request = self.header(CONTENT_TYPE, kind);
        Request { builder: request.builder.body(text), ..request }
    }

    pub(super) fn json(self, object: &Object) -> Self {
        self.body("application/json", object.to_json())
    }

    /// Sends it. Anything but a success is an error.
    pub(super) async fn send(self) -> Result<Answer, ClientError> {
        let answer = self.send_for_any().await?;
        match answer.response.status().is_success() {
            true => Ok(answer),
            false => Err(answer.refusal().await),
        }
    }

    /// The same, with nothing instead of an answer if what is there is what the caller has.
    pub(super) async fn send_if_changed(self) -> Result<Option<Answer>, ClientError> {
        let answer = self.send_for_any().await?;
        match answer.response.status() {
            StatusCode::NOT_MODIFIED => Ok(None),
            status if status.is_success() => Ok(Some(answer)),
            _ => Err(answer.refusal().await),
        }
    }

    async fn send_for_any(self) -> Result<Answer, ClientError> {
        let Request { builder, asked, begins_within } = self;
        match within(begins_within, builder.send()).await {
            Some(Ok(response)) => Ok(Answer { response, asked }),
            Some(Err(cause)) => Err(asked.failure(&cause)),
            None => Err(asked.silence()),
        }
    }
}

impl Answer {
    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    pub(super) fn etag(&self) -> Option<String> {
        self.header(ETAG).map(str::to_owned)
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// Refuses an answer of another kind.
    pub(super) fn of_kind(self, expected: &str) -> Result<Self, ClientError> {
        let kind = self.header(CONTENT_TYPE).unwrap_or("none").trim().to_ascii_lowercase();
        match kind.starts_with(expected) {
            true => Ok(self),
            false => Err(self.asked.bad_answer(format!("its type is {kind:?} instead of {expected:?}"))),
        }
    }

    /// The next piece of it. Waits as long as a silence may last.
    pub(super) async fn piece(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        match within(Some(self.asked.silence_max()), self.response.chunk()).await {
            Some(Ok(piece)) => Ok(piece.map(Vec::from)),
            Some(Err(cause)) => Err(self.asked.failure(&cause)),
            None => Err(self.asked.silence()),
        }
    }

    /// All of it.
    pub(super) async fn text(self) -> Result<String, ClientError> {
        self.text_within(SIDECAR_BYTES_MAX).await
    }

    async fn text_within(mut self, bytes_max: u64) -> Result<String, ClientError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > bytes_max {
                return Err(self.asked.bad_answer(format!("it is longer than {bytes_max} bytes")));
            }
        }
        String::from_utf8(bytes).map_err(|_| self.asked.bad_answer("it is not UTF-8"))
    }

    /// All of it, a JSON object.
    pub(super) async fn object(self) -> Result<(Object, Asked), ClientError> {
        let asked = self.asked.clone();
        let text = self.of_kind("application/json")?.text().await?;
        let object = Object::parse(&text).ok_or_else(|| asked.bad_answer("it is no JSON object"))?;
        Ok((object, asked))
    }

    async fn refusal(self) -> ClientError {
        let (status, asked) = (self.response.status().as_u16(), self.asked.clone());
        let seconds = self.header(RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        // A refusal is one also if its words do not arrive.
        let text = self.text_within(RECORD_BYTES_MAX).await.unwrap_or_default();
        let words = Words::of(&text).unwrap_or_else(|| Words::of_status(status));
        let Words { code, message, last_seq } = words;
        let message = asked.without_token(message);
        ClientError::Api { attempt: asked.attempt, status, code, message, last_seq, retry_after }
    }
}

impl Asked {
    fn silence_max(&self) -> Duration {
        self.client.inner.options.silence_max
    }

    fn server(&self) -> String {
        self.client.address().to_owned()
    }

    fn without_token(&self, text: String) -> String {
        match &self.client.inner.options.token {
            Some(token) => token.hide(text),
            None => text,
        }
    }

    pub(super) fn bad_answer(&self, reason: impl Into<String>) -> ClientError {
        let reason = self.without_token(reason.into());
        ClientError::BadAnswer { attempt: self.attempt.clone(), server: self.server(), reason }
    }

    pub(super) fn broken_off(&self, reason: impl Into<String>) -> ClientError {
        let reason = self.without_token(reason.into());
        ClientError::BrokenOff { attempt: self.attempt.clone(), server: self.server(), reason }
    }

    fn silence(&self) -> ClientError {
        self.broken_off(format!("nothing came for {} s", self.silence_max().as_secs_f64()))
    }

    fn failure(&self, cause: &reqwest::Error) -> ClientError {
        let reason = innermost(cause);
        match cause.is_connect() {
            true => ClientError::Unreachable { attempt: self.attempt.clone(), server: self.server(), reason },
            false => self.broken_off(reason),
        }
    }
}

/// What a refusal says.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    code: String,
    message: String,
    last_seq: Option<u64>,
}

impl Words {
    fn of(text: &str) -> Option<Self> {
        let error = Object::parse(Object::parse(text)?.get("error")?)?;
        let word = |key| error.text(key).map(|text| text.into_owned());
        let last_seq = error.get("last_seq").and_then(|seq| seq.parse().ok());
        Some(Words { code: word("code")?, message: word("message").unwrap_or_default(), last_seq })
    }

    /// Somebody on the way answered, who has words of their own.
    fn of_status(status: u16) -> Self {
        let known = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let message = known.unwrap_or("no reason was given").to_owned();
        Words { code: format!("http_{status}"), message, last_seq: None }
    }
}

/// The reason behind the reasons. It names no address and no header.
pub(super) fn innermost(cause: &dyn Error) -> String {
    let mut inner = cause;
    while let Some(next) = inner.source() {
        inner = next;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_servers_words_or_those_of_its_status() {
        let text = r#"{"error":{"code":"seq_conflict","message":"it was taken","last_seq":7}}"#;
        let words = Words::of(text).unwrap();
        assert_eq!((words.code.as_str(), words.message.as_str()), ("seq_conflict", "it was taken"));
        assert_eq!(words.last_seq, Some(7));
        for odd in ["", "<html>", "{}", r#"{"error":"no"}"#, r#"{"error":{"code":5}}"#] {
            assert_eq!(Words::of(odd), None, "{odd}");
        }
        assert_eq!(Words::of_status(502).message, "Bad Gateway");
        assert_eq!(Words::of_status(599).code, "http_599");
    }
}
