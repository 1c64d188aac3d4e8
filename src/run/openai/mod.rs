//! Any endpoint that speaks OpenAI's chat completions, streamed: text, reasoning, tool calls, usage; and everything that
//! can go wrong on the way. The key is read when it is needed and shown nowhere.

mod answer;
mod calls;
mod chunk;
mod key;
mod refusal;
mod sse;

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};

use self::answer::Answer;
pub use self::key::ApiKey;
use self::key::Secret;
use self::refusal::refusal;
use super::runner::{Failure, Finish, Outlet, Producing, Prompt, Runner};
use crate::model::{ContextMessage, Object};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks an endpoint for every answer.
#[derive(Debug, Clone)]
pub struct OpenAiRunner {
    /// Where `/chat/completions` is found.
    base_url: Url,
    /// The model that is asked for.
    model: String,
    client: Client,
    /// Where the key is found.
    pub key: ApiKey,
    /// Instructions for conversations that have none.
    pub system: Option<String>,
    /// A JSON object whose keys are added to the request, and win over ours.
    pub body: String,
    /// Headers that are added to the request.
    pub headers: Vec<(String, String)>,
}

impl OpenAiRunner {
    /// A runner for an endpoint whose address ends before `/chat/completions`.
    pub fn new(base_url: &str, model: &str) -> Result<Self, String> {
        let url = Url::parse(&format!("{}/chat/completions", base_url.trim_end_matches('/')))
            .map_err(|cause| format!("`base_url` {base_url:?} is no address: {cause}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`base_url` {base_url:?} begins with neither http nor https"));
        }
        Ok(OpenAiRunner {
            base_url: url,
            model: model.to_owned(),
            client: client()?,
            key: ApiKey::None,
            system: None,
            body: "{}".to_owned(),
            headers: Vec::new(),
        })
    }

    /// Whether a request can be made of it.
    pub fn check(&self) -> Result<(), String> {
        self.own_headers()?;
        Object::parse(&self.body).map(drop).ok_or_else(|| "`body` is no object".to_owned())
    }

    async fn answer(self, prompt: Prompt, outlet: Outlet) -> Result<Finish, Failure> {
        let secret = self.key.read().map_err(unusable)?;
        let response = self.ask(prompt, &secret).await?;
        if !response.status().is_success() {
            return Err(refusal(response, &secret).await);
        }
        let answer = Answer::asked_with(secret);
        match is_whole(&response) {
            true => answer.take_whole(response, &outlet).await,
            false => answer.take_stream(response, &outlet).await,
        }
    }

    async fn ask(&self, prompt: Prompt, secret: &Secret) -> Result<Response, Failure> {
        let request = self.client.post(self.base_url.clone()).headers(self.headers_of_request(secret)?);
        request.body(self.request_body(prompt)).send().await.map_err(|cause| connection_failure(&cause))
    }

    fn request_body(&self, prompt: Prompt) -> String {
        let mut context = prompt.context;
        let has_system = matches!(context.messages.first(), Some(ContextMessage::System { .. }));
        if let (Some(text), false) = (&self.system, has_system) {
            context.messages.insert(0, ContextMessage::System { text: text.clone() });
        }
        let mut body = Object::default();
        body.set_text("model", &self.model);
        body.set("stream", "true");
        body.set("stream_options", r#"{"include_usage":true}"#);
        for (key, value) in Object::parse(&self.body).unwrap_or_default().iter() {
            body.set(key, value);
        }
        body.set("messages", context.to_json());
        body.to_json()
    }

    fn headers_of_request(&self, secret: &Secret) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = secret.key() {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| unusable("The key holds characters that no header may hold".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers.extend(self.own_headers().map_err(unusable)?);
        Ok(headers)
    }

    fn own_headers(&self) -> Result<HeaderMap, String> {
        let header = |(name, value): &(String, String)| {
            let bad = || format!("the header {name:?} cannot be sent");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            Ok((name, value))
        };
        self.headers.iter().map(header).collect()
    }
}

impl Runner for OpenAiRunner {
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing {
        let runner = self.clone();
        Box::pin(async move {
            let listener = outlet.clone();
            listener.unless_stopped(runner.answer(prompt, outlet)).await?
        })
    }
}

fn client() -> Result<Client, String> {
    // If somebody else has chosen already, theirs is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(reqwest::redirect::Policy::none());
    client.user_agent(concat!("lastword/", env!("CARGO_PKG_VERSION"))).build().map_err(|cause| cause.to_string())
}

/// Whether a server answers with one document, although a stream was asked for.
fn is_whole(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim().to_ascii_lowercase().starts_with("application/json"))
}

/// A request that cannot be made as the runner is configured.
fn unusable(reason: String) -> Failure {
    Failure::new("bad_configuration", format!("{reason}. Look at the runner's configuration."))
}

/// A request that got no answer, or an answer that broke off.
fn connection_failure(cause: &reqwest::Error) -> Failure {
    let what = if cause.is_connect() { "could not be reached" } else { "broke off the connection" };
    let reason = innermost(cause);
    Failure::new("connection", format!("The backend {what}: {reason}. What had arrived is kept; please try again."))
        .retryable()
        .closed_by("connection")
}

/// The reason behind the reasons. It names no address and no header.
fn innermost(cause: &dyn std::error::Error) -> String {
    let mut inner = cause;
    while let Some(next) = inner.source() {
        inner = next;
    }
    inner.to_string()
}
