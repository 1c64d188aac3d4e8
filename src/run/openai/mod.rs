//! Any endpoint that speaks OpenAI's chat completions, streamed: text, reasoning, tool calls, usage; and everything that
//! can go wrong on the way. Secrets are read when they are needed and shown nowhere.

mod answer;
mod calls;
mod chunk;
mod key;
mod refusal;
mod request;
mod unsent;
mod usage;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Request, Response, Url};

use self::answer::Answer;
pub use self::key::ApiKey;
use self::key::Secrets;
use self::refusal::Refusal;
use super::runner::{Failure, Finish, Outlet, Producing, Prompt, Runner};
use super::sleep::joined;
use crate::model::{Event, Object};

/// Asks an endpoint for every answer.
#[derive(Clone)]
pub struct OpenAiRunner {
    /// Where completions are asked for.
    address: Url,
    /// The model that is asked for.
    model: String,
    /// Made when it is first needed, because it reads the system's certificates.
    client: Arc<OnceLock<Client>>,
    /// Whether the endpoint refused `stream_options`, and took the same request without them.
    endpoint_refuses_options: Arc<AtomicBool>,
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
    /// Whether requests ask for the usage with `stream_options`. Without, an endpoint may not say what an answer took.
    pub stream_options: bool,
    /// Whether the model takes anything but text. Without, attachments are left out, and the answer says so.
    pub attachments: bool,
}

impl OpenAiRunner {
    /// A runner for an endpoint whose address ends before `/chat/completions`.
    pub fn new(base_url: &str, model: &str) -> Result<Self, String> {
        Ok(OpenAiRunner {
            address: request::address(base_url)?,
            model: model.to_owned(),
            client: Arc::default(),
            endpoint_refuses_options: Arc::default(),
            key: ApiKey::None,
            system: None,
            body: "{}".to_owned(),
            headers: Vec::new(),
            headers_env: Vec::new(),
            stream_options: true,
            attachments: true,
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
        // A key may lie on a slow disk, and so may the system's certificates. Attachments are large.
        let ready = joined(tokio::task::spawn_blocking(move || runner.prepare(prompt))).await;
        let Prepared { client, secrets, request, preface } = ready.map_err(unusable)?;
        let response = self.response(&client, &secrets, request).await?;
        let answer = Answer::asked_with(secrets, preface);
        match is_whole(&response) {
            true => answer.take_whole(response, &outlet).await,
            false => answer.take_stream(response, &outlet).await,
        }
    }

    /// Makes a request of a conversation. Blocks.
    fn prepare(&self, prompt: Prompt) -> Result<Prepared, String> {
        let (client, secrets) = (self.client()?, self.secrets()?);
        let preface = unsent::events(&unsent::unsent(&prompt, self.attachments));
        let request = client.post(self.address.clone()).headers(self.headers_of_request(&secrets)?);
        let request = request.body(self.request_body(prompt)).build().map_err(|cause| innermost(&cause))?;
        Ok(Prepared { client, secrets, request, preface })
    }

    /// The answer to a request. An endpoint that refuses `stream_options` is asked once more at once, without them, and
    /// from then on never with them.
    async fn response(&self, client: &Client, secrets: &Secrets, request: Request) -> Result<Response, Failure> {
        let again = request.try_clone();
        let response = sent(client, request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let refusal = Refusal::read(response).await;
        let again = again.filter(|_| self.may_leave_out_options(&refusal)).and_then(plainer);
        let Some(plainer) = again else { return Err(refusal.failure(secrets)) };
        let response = sent(client, plainer).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await.failure(secrets));
        }
        self.endpoint_refuses_options.store(true, Ordering::Relaxed);
        Ok(response)
    }

    fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = request::client(&self.address)?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

/// A request that is ready to be sent.
struct Prepared {
    client: Client,
    secrets: Secrets,
    request: Request,
    /// What the answer begins with.
    preface: Vec<Event>,
}

impl Runner for OpenAiRunner {
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing {
        let runner = self.clone();
        Box::pin(async move {
            let listener = outlet.clone();
            listener.unless_stopped(runner.answer(prompt, outlet)).await?
        })
    }

    fn kind(&self) -> &str {
        "openai"
    }
}

/// Addresses, bodies and headers may hold secrets.
impl fmt::Debug for OpenAiRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.address.host_str().unwrap_or_default();
        f.debug_struct("OpenAiRunner").field("host", &host).field("model", &self.model).finish_non_exhaustive()
    }
}

/// Sends a request. A response of any status is one.
async fn sent(client: &Client, request: Request) -> Result<Response, Failure> {
    client.execute(request).await.map_err(|cause| connection_failure(&cause))
}

/// The same request without `stream_options`.
fn plainer(mut request: Request) -> Option<Request> {
    let body = request::without_options(request.body()?.as_bytes()?)?;
    *request.body_mut() = Some(body.into());
    Some(request)
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
