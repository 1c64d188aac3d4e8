//! Attachments: uploaded, fetched, and taken out of the messages that bring them. What was uploaded is never shown as a page of
//! this server: only pictures are shown at all, and none of it may run.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::{OpenApi, Required};
use utoipa::{IntoParams, ToSchema};

use super::sessions::missing;
use crate::http::app::SharedApp;
use crate::http::chat::{BadFile, FileAt, FilePart, UNKNOWN_TYPE, attached, disposition, is_picture, plain_name};
use crate::http::describe::{FileBytes, InAttachment, InSession, Knowing};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfAttachment, OfSession, media_type_of, read_body_up_to, text_of};
use crate::limits::{ATTACHMENT_BYTES_MAX, PARTS_MAX};
use crate::model::{Attachment, AttachmentId, SessionId};
use crate::store::Store;

/// What a browser may do with an attachment: show it where it is embedded, and nothing else.
const CONTENT_POLICY: &str = "default-src 'none'; sandbox";

/// The bytes of an id never change.
const FOREVER: &str = "private, max-age=31536000, immutable";

/// An attachment that is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StoredAttachment {
    /// Its id: the SHA-256 hash of its bytes.
    #[schema(pattern = "^sha256-[0-9a-f]{64}$")]
    attachment: String,
    /// What its bytes are, as the first upload of them said.
    media_type: String,
    bytes: u64,
    /// What the file is called, as the first upload of it said.
    filename: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadAsked {
    /// What the file is called. Folders and control characters are left out.
    filename: Option<String>,
}

/// An upload without a body is an empty file.
pub(super) fn describe(described: &mut OpenApi) {
    let path = described.paths.paths.get_mut("/v1/sessions/{sid}/attachments");
    let upload = path.and_then(|path| path.post.as_mut()).and_then(|upload| upload.request_body.as_mut());
    upload.into_iter().for_each(|body| body.required = Some(Required::False));
}

/// Stores a file beside a session. It is durable when this answers; the same bytes are stored once.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/attachments", operation_id = "store_attachment", tag = "attachments",
    params(InSession, UploadAsked),
    request_body(content = FileBytes, content_type = "application/octet-stream",
                 description = "The bytes, with whatever Content-Type they have."),
    responses(
        (status = 201, description = "It is stored.", body = StoredAttachment,
         headers(("location" = String, description = "Its path.")),
         links(("read" = (operation_id = "read_attachment",
                          parameters(("sid" = "$request.path.sid"), ("attachment" = "$response.body#/attachment")))))),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = 413, description = "It is too large.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn upload(
    State(app): State<SharedApp>,
    OfSession(session): OfSession,
    Asked(asked): Asked<UploadAsked>,
    request: Request,
) -> Result<Response, ApiError> {
    let media_type = media_type_of(request.headers()).unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
    let filename = asked.filename.map(|name| plain_name(&name)).filter(|name| !name.is_empty());
    let bytes = read_body_up_to(request, &app, ATTACHMENT_BYTES_MAX.min(app.options.body_bytes_max)).await?;
    let stored =
        app.document(&session, move |store, id| store.put_attachment(id, &bytes, &media_type, filename.as_deref()));
    let stored = stored.await?.map_err(missing)?;
    let location = format!("/v1/sessions/{session}/attachments/{}", stored.id);
    let location = HeaderValue::from_str(&location).map_err(|cause| ApiError::broken(cause.to_string()))?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(StoredAttachment::of(stored))).into_response())
}

impl StoredAttachment {
    fn of(stored: Attachment) -> Self {
        let Attachment { id, media_type, bytes, filename } = stored;
        StoredAttachment { attachment: id.to_string(), media_type, bytes, filename }
    }
}

/// Reads a file that was stored beside a session.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/attachments/{attachment}", operation_id = "read_attachment", tag = "attachments",
    params(InAttachment, Knowing),
    responses(
        (status = 200, description = "Its bytes, with the type and the name that they were stored with.", content_type = "*/*",
         body = FileBytes, headers(("etag" = String, description = "Its id."),
                                   ("content-disposition" = String, description = "`inline` for pictures, else `attachment`."))),
        (status = 304, description = "It is there already."),
        (status = 404, description = "There is no such attachment.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn read(
    State(app): State<SharedApp>,
    OfAttachment(session, id): OfAttachment,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let tag = format!("\"{id}\"");
    let known = text_of(&headers, &header::IF_NONE_MATCH).unwrap_or_default();
    let is_known = known.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag);
    let read = app.document(&session, move |store, session| {
        let Some(info) = store.attachment(session, &id).map_err(missing)? else {
            return Err(ApiError::no_attachment());
        };
        let bytes = match is_known {
            true => None,
            false => Some(store.attachment_bytes(session, &id)?.ok_or_else(ApiError::no_attachment)?),
        };
        Ok((info, bytes))
    });
    let (info, bytes) = read.await??;
    let mut response = match bytes {
        Some(bytes) => with_type(bytes, &info),
        None => StatusCode::NOT_MODIFIED.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(FOREVER));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    HeaderValue::from_str(&tag).into_iter().for_each(|tag| drop(headers.insert(header::ETAG, tag)));
    Ok(response)
}

fn with_type(bytes: Vec<u8>, info: &Attachment) -> Response {
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    let disposition = disposition(is_picture(&info.media_type), info.filename.as_deref());
    for (name, value) in [(header::CONTENT_TYPE, &info.media_type), (header::CONTENT_DISPOSITION, &disposition)] {
        let fallback =
            || HeaderValue::from_static(if name == header::CONTENT_TYPE { UNKNOWN_TYPE } else { "attachment" });
        headers.insert(&name, HeaderValue::from_str(value).unwrap_or_else(|_| fallback()));
    }
    response
}

/// The attachments of a turn, as a row keeps them, and the bytes that are not stored yet.
pub(super) struct Attached {
    items: Vec<Item>,
    json: String,
}

enum Item {
    File(Box<FilePart>),
    /// Nothing that could be stored: it stays as it is.
    Other(Box<str>),
}

fn refused_file(nth: usize, why: &BadFile) -> ApiError {
    let message = format!("attachment {nth} {why}");
    match why {
        BadFile::OtherSession => ApiError::foreign_attachment(message),
        _ => ApiError::invalid(message),
    }
}

impl Attached {
    pub(super) fn files(files: Vec<FilePart>) -> Self {
        Self::of(files.into_iter().map(|file| Item::File(Box::new(file))).collect())
    }

    /// Reads the list of a turn's attachments.
    pub(super) fn parse(list: &str, session: &SessionId) -> Result<Self, ApiError> {
        let list = serde_json::from_str::<Vec<&RawValue>>(list);
        let list = list.map_err(|_| ApiError::invalid("the attachments are not a JSON list: give a list, or none"))?;
        if list.len() > PARTS_MAX {
            let message = format!("there are more than {PARTS_MAX} attachments: send them with several messages");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
        }
        let item = |(nth, item): (usize, &RawValue)| match attached(item.get(), session.as_str()) {
            Ok(Some(file)) => Ok(Item::File(Box::new(file))),
            Ok(None) => Ok(Item::Other(item.get().into())),
            Err(why) => Err(refused_file(nth, &why)),
        };
        Ok(Self::of((1..).zip(list).map(item).collect::<Result<_, ApiError>>()?))
    }

    fn of(items: Vec<Item>) -> Self {
        Attached { items, json: String::new() }
    }

    fn to_json(&self) -> String {
        let json = |item: &Item| match item {
            Item::File(file) => match &file.at {
                FileAt::Inline(url) => file.to_json(Some(&AttachmentId::of_bytes(&url.bytes))),
                FileAt::Stored(id) => file.to_json(Some(id)),
                FileAt::Elsewhere => file.to_json(None),
            },
            Item::Other(json) => json.to_string(),
        };
        format!("[{}]", self.items.iter().map(json).collect::<Vec<_>>().join(","))
    }

    /// The list for the row, once it was checked.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    fn in_items(&mut self) -> impl Iterator<Item = &mut FilePart> {
        self.items.iter_mut().filter_map(|item| match item {
            Item::File(file) => Some(&mut **file),
            Item::Other(_) => None,
        })
    }

    /// Checks that the session has every attachment that is named, and adds what is known of it.
    pub(super) fn check(mut self, store: &Store, session: &SessionId) -> Result<Self, ApiError> {
        for file in self.in_items() {
            let FileAt::Stored(id) = &file.at else { continue };
            match store.attachment(session, id)? {
                Some(known) => file.complete(&known),
                None => return Err(ApiError::unknown_attachment(id.as_str())),
            }
        }
        self.json = self.to_json();
        Ok(self)
    }

    /// Stores the bytes that came with the message. They are durable before the turn begins.
    pub(super) fn store(mut self, store: &Store, session: &SessionId) -> Result<(), ApiError> {
        for file in self.in_items() {
            if let FileAt::Inline(url) = &file.at {
                let stored = store.put_attachment(session, &url.bytes, &file.media_type(), file.filename().as_deref());
                stored.map_err(missing)?;
            }
        }
        Ok(())
    }
}
