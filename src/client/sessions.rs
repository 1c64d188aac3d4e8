//! What can be asked about sessions.

use reqwest::Method;
use reqwest::header::{IF_MATCH, IF_NONE_MATCH};
use serde_json::value::RawValue;

use super::transport::{Answer, Asked, Request};
use super::{Client, ClientError};
use crate::model::{Object, SessionId};
use crate::store::NewSession;

/// A JSON object as the server gave it, and the name of its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The object's text.
    pub text: String,
    /// The version, to be given to [`IfMatch`].
    pub etag: Option<String>,
}

/// A session that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// Its id.
    pub session: SessionId,
    /// Its metadata.
    pub metadata: Document,
}

/// Which sessions are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListQuery {
    /// At most so many.
    pub limit: Option<u32>,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// Only those in which this is found.
    pub text: Option<String>,
    /// Only those that are archived, or only those that are not.
    pub archived: Option<bool>,
}

impl ListQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let limit = self.limit.map(|limit| ("limit", limit.to_string()));
        let cursor = self.cursor.clone().map(|cursor| ("cursor", cursor));
        let text = self.text.clone().map(|text| ("q", text));
        let archived = self.archived.map(|archived| ("archived", archived.to_string()));
        [limit, cursor, text, archived].into_iter().flatten().collect()
    }
}

/// A part of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    /// The sessions, the one changed last first.
    pub sessions: Vec<ListedSession>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
}

/// A session in the list: its summary, or why it has none.
pub type ListedSession = Result<Object, UnreadableSession>;

/// A session that is there and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableSession {
    /// Its id.
    pub session: String,
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// Which rows of a transcript are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsQuery {
    /// Those before this row; before the end if there is none.
    pub before: Option<u64>,
    /// So many of them.
    pub limit: u64,
}

/// What is changed of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// A new title.
    pub title: Option<String>,
    /// Whether it stands at the top.
    pub pinned: Option<bool>,
    /// Whether it is put aside.
    pub archived: Option<bool>,
}

/// Which version of a session may be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfMatch {
    /// This one only.
    Etag(String),
    /// Whatever is there.
    Any,
}

impl IfMatch {
    fn as_str(&self) -> &str {
        match self {
            IfMatch::Etag(etag) => etag,
            IfMatch::Any => "*",
        }
    }
}

impl Client {
    /// Whether the server takes work.
    pub async fn is_ready(&self) -> Result<(), ClientError> {
        self.request(Method::GET, &["readyz"], "ask whether the server is ready").send().await.map(drop)
    }

    /// Creates a session.
    pub async fn create_session(&self, new: &NewSession) -> Result<Created, ClientError> {
        let mut body = Object::default();
        body.set_text("title", &new.title);
        let attempt = match &new.id {
            Some(id) => {
                body.set_text("session_id", id.as_str());
                format!("create session {id}")
            }
            None => "create a session".to_owned(),
        };
        let answer = self.request(Method::POST, &["v1", "sessions"], attempt).json(&body).send().await?;
        let (asked, metadata) = (answer.asked().clone(), document(answer).await?);
        let id = Object::parse(&metadata.text).and_then(|object| SessionId::parse(&object.text("session_id")?).ok());
        let session = id.ok_or_else(|| asked.bad_answer("it has no `session_id`"))?;
        Ok(Created { session, metadata })
    }

    /// A page of the list. Go on with [`SessionPage::next_cursor`] until there is none.
    pub async fn sessions(&self, query: &ListQuery) -> Result<SessionPage, ClientError> {
        let mut url = self.place(&["v1", "sessions"]);
        for (key, value) in query.pairs() {
            url.query_pairs_mut().append_pair(key, &value);
        }
        let answer = self.request_at(Method::GET, url, "list the sessions").send().await?;
        let (page, asked) = answer.object().await?;
        let sessions = page.get("sessions").and_then(|list| serde_json::from_str::<Vec<&RawValue>>(list).ok());
        let sessions = sessions.ok_or_else(|| asked.bad_answer("it has no `sessions`"))?;
        let sessions = sessions.into_iter().map(|session| listed(session.get(), &asked)).collect::<Result<_, _>>()?;
        Ok(SessionPage { sessions, next_cursor: page.text("next_cursor").map(|cursor| cursor.into_owned()) })
    }

    /// The whole session: the object of its file.
    pub async fn session(&self, session: &SessionId) -> Result<Document, ClientError> {
        document(self.read(session, &[]).send().await?).await
    }

    /// The whole session, or nothing if it is still of this version.
    pub async fn session_if_changed(&self, session: &SessionId, etag: &str) -> Result<Option<Document>, ClientError> {
        match self.read(session, &[]).header(IF_NONE_MATCH, etag).send_if_changed().await? {
            Some(answer) => document(answer).await.map(Some),
            None => Ok(None),
        }
    }

    /// What stands before the transcript, and how many rows that has.
    pub async fn metadata(&self, session: &SessionId) -> Result<Document, ClientError> {
        document(self.read(session, &[("view", "metadata")]).send().await?).await
    }

    /// The session with some of its rows, and a `page` that says which.
    pub async fn rows(&self, session: &SessionId, query: RowsQuery) -> Result<Document, ClientError> {
        let (limit, before) = (query.limit.to_string(), query.before.map(|before| before.to_string()));
        let mut pairs = vec![("limit", limit.as_str())];
        pairs.extend(before.as_deref().map(|before| ("rows_before", before)));
        document(self.read(session, &pairs).send().await?).await
    }

    /// Changes a session, if it is of the version that is expected.
    pub async fn patch(&self, session: &SessionId, change: &Change, only: &IfMatch) -> Result<Document, ClientError> {
        let mut body = Object::default();
        if let Some(title) = &change.title {
            body.set_text("title", title);
        }
        for (key, value) in [("pinned", change.pinned), ("archived", change.archived)] {
            if let Some(value) = value {
                body.set(key, value.to_string());
            }
        }
        let attempt = format!("change session {session}");
        let request = self.request(Method::PATCH, &["v1", "sessions", session.as_str()], attempt);
        document(request.header(IF_MATCH, only.as_str()).json(&body).send().await?).await
    }

    /// Moves a session to the trash.
    pub async fn delete(&self, session: &SessionId, only: &IfMatch) -> Result<(), ClientError> {
        let attempt = format!("delete session {session}");
        let request = self.request(Method::DELETE, &["v1", "sessions", session.as_str()], attempt);
        let request = match only {
            IfMatch::Any => request,
            IfMatch::Etag(etag) => request.header(IF_MATCH, etag),
        };
        request.send().await.map(drop)
    }

    /// What the doctor finds in these sessions, or in all: the report as JSON. May take long.
    pub async fn check(&self, sessions: &[SessionId]) -> Result<String, ClientError> {
        let mut url = self.place(&["v1", "check"]);
        for session in sessions {
            url.query_pairs_mut().append_pair("session", session.as_str());
        }
        let request = self.request_at(Method::GET, url, "check the data directory").unhurried();
        document(request.send().await?).await.map(|document| document.text)
    }

    fn read(&self, session: &SessionId, pairs: &[(&str, &str)]) -> Request {
        let mut url = self.place(&["v1", "sessions", session.as_str()]);
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        self.request_at(Method::GET, url, format!("read session {session}"))
    }
}

async fn document(answer: Answer) -> Result<Document, ClientError> {
    let answer = answer.of_kind("application/json")?;
    let etag = answer.etag();
    Ok(Document { text: answer.text().await?, etag })
}

fn listed(text: &str, asked: &Asked) -> Result<ListedSession, ClientError> {
    let summary = Object::parse(text).ok_or_else(|| asked.bad_answer("a session in it is no object"))?;
    let Some(error) = summary.get("error").and_then(Object::parse) else { return Ok(Ok(summary)) };
    let word = |object: &Object, key: &str| object.text(key).unwrap_or_default().into_owned();
    Ok(Err(UnreadableSession {
        session: word(&summary, "session_id"),
        code: word(&error, "code"),
        message: word(&error, "message"),
    }))
}
