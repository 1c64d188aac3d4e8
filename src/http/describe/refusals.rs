//! What every call may answer: refusals and failures, and the headers that they have.

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Header, OpenApi, RefOr, Response};

/// The status of refusals that are not named one by one, and that of failures.
const REFUSED: &str = "4XX";
const FAILED: &str = "5XX";

/// Gives every call the failures that none is free of, and every error the headers that it may have.
pub(in crate::http) fn describe_refusals(described: &mut OpenApi) {
    for (path, item) in &mut described.paths.paths {
        for operation in operations(item) {
            add_failure(operation);
            errors(operation).for_each(|error| add_headers(error, path.starts_with("/api/chat")));
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, head, patch, .. } = item;
    [get, put, post, delete, head, patch].into_iter().flatten()
}

/// A server that is shutting down or has no place left answers so to every call.
fn add_failure(operation: &mut Operation) {
    let responses = &mut operation.responses.responses;
    if let Some(RefOr::T(mut response)) = responses.get(REFUSED).cloned()
        && !responses.contains_key(FAILED)
    {
        "Failed.".clone_into(&mut response.description);
        responses.insert(FAILED.to_owned(), response.into());
    }
}

fn errors(operation: &mut Operation) -> impl Iterator<Item = &mut Response> {
    let responses = operation.responses.responses.iter_mut();
    responses.filter(|(status, _)| status.starts_with(['4', '5'])).filter_map(|(_, response)| match response {
        RefOr::T(response) => Some(response),
        RefOr::Ref(_) => None,
    })
}

fn add_headers(error: &mut Response, is_of_chat: bool) {
    let pause = "Seconds after which it is worth trying again, where it is.";
    error.headers.insert("retry-after".to_owned(), header(Type::Integer, pause));
    if is_of_chat {
        let code = "The code of the error, whose text is the body.";
        error.headers.insert("lastword-error".to_owned(), header(Type::String, code));
    }
}

fn header(value: Type, about: &str) -> Header {
    HeaderBuilder::new().schema(ObjectBuilder::new().schema_type(value)).description(Some(about)).build()
}
