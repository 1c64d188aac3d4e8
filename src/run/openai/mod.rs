//! Any endpoint that speaks OpenAI's chat completions, streamed: text, reasoning, tool calls, usage; and everything that
//! can go wrong on the way. Secrets are read when they are needed and shown nowhere.

mod answer;
mod calls;
mod chunk;
mod key;
mod refusal;
mod request;

use std::fmt;
use std::sync::{Arc, OnceLock};

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, Url};

use self::answer::Answer;
pub use self::key::ApiKey;
use self::refusal::refusal;
use super::runner::{Failure, Finish, Outlet, Producing, Prompt, Runner};
use super::sleep::joined;
use crate::model::Object;

/// Asks an endpoint for every answer.
#[derive(Clone)]
pub struct OpenAiRunner {
    /// Where completions are asked for.
    address: Url,
    /// The model that is asked for.
    model: String,
    /// Made when it is first needed, because it reads the system's certificates.
    client: Arc<OnceLock<Client>>,
    /// Where the key is found.
    pub key: ApiKey,
    /// Instructions for conversations that have none.
    pub system: Option<String>,
    /// A JSON object whose keys are added to the request, and win over ours.
    pub body: String,
    /// Headers that are added to the request.
    pub headers: Vec<(String, String)>,
    /// Headers that are added to the request, and the variables of the environment that hold their values.
    pub headers_env: Vec<(String, String)>,
}

impl OpenAiRunner {
    /// A runner for an endpoint whose address ends before `/chat/completions`.
    pub fn new(base_url: &str, model: &str) -> Result<Self, String> {
        Ok(OpenAiRunner {
            address: request::address(base_url)?,
            model: model.to_owned(),
            client: Arc::default(),
            key: ApiKey::None,
            system: None,
            body: "{}".to_owned(),
            headers: Vec::new(),
            headers_env: Vec::new(),
        })
    }

    /// Whether a request can be made of it.
    pub fn check(&self) -> Result<(), String> {
        self.headers.iter().try_for_each(|(name, value)| request::header(name, value).map(drop))?;
        self.headers_env.iter().try_for_each(|(name, _)| request::header(name, "").map(drop))?;
        Object::parse(&self.body).map(drop).ok_or_else(|| "`body` is no object".to_owned())
    }

    async fn answer(self, prompt: Prompt, outlet: Outlet) -> Result<Finish, Failure> {
        let runner = self.clone();
        // A key may lie on a slow disk, and so may the system's certificates.
        let ready = joined(tokio::task::spawn_blocking(move || Ok((runner.client()?, runner.secrets()?)))).await;
        let (client, secrets) = ready.map_err(unusable)?;
        let request = client.post(self.address.clone()).headers(self.headers_of_request(&secrets).map_err(unusable)?);
        let sent = request.body(self.request_body(prompt)).send().await;
        let response = sent.map_err(|cause| connection_failure(&cause))?;
        if !response.status().is_success() {
            return Err(refusal(response, &secrets).await);
        }
        let answer = Answer::asked_with(secrets);
        match is_whole(&response) {
            true => answer.take_whole(response, &outlet).await,
            false => answer.take_stream(response, &outlet).await,
        }
    }

    fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = request::client(&self.address)?;
        Ok(self.client.get_or_init(|| client).clone())
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

/// Addresses, bodies and headers may hold secrets.
impl fmt::Debug for OpenAiRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.address.host_str().unwrap_or_default();
        f.debug_struct("OpenAiRunner").field("host", &host).field("model", &self.model).finish_non_exhaustive()
    }
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
