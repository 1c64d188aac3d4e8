//! What the API's description says about credentials, and about the path under which the server is offered.

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi, Server};

use crate::http::base_path::BasePath;

/// The credentials of calls that change something, and of those that only read.
const CHANGING: &[&str] = &["token", "cookie"];
const READING: &[&str] = &["token", "cookie", "ticket"];

/// Adds the security schemes, and the tickets of the calls that take them.
pub(super) fn describe(described: &mut OpenApi, base: &BasePath) {
    let components = described.components.get_or_insert_default();
    components.add_security_scheme("token", token());
    components.add_security_scheme("cookie", cookie());
    components.add_security_scheme("ticket", ticket());
    described.security = Some(requirements(CHANGING));
    described.paths.paths.values_mut().flat_map(readings).for_each(|read| {
        read.security.get_or_insert_with(|| requirements(READING));
    });
    let address = if base.as_str().is_empty() { "/" } else { base.as_str() };
    described.servers = Some(vec![Server::new(address)]);
}

/// One of them is enough.
fn requirements(schemes: &[&str]) -> Vec<SecurityRequirement> {
    schemes.iter().map(|scheme| SecurityRequirement::new(*scheme, [] as [&str; 0])).collect()
}

fn readings(path: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    path.get.iter_mut().chain(path.head.iter_mut())
}

fn token() -> SecurityScheme {
    let mut token = Http::new(HttpAuthScheme::Bearer);
    token.description = Some("One of the server's token file. A server without such a file asks for none.".to_owned());
    SecurityScheme::Http(token)
}

fn cookie() -> SecurityScheme {
    let about = "What POST /login gives for a token. It changes something only from the server's own page.";
    SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::with_description("lastword", about)))
}

fn ticket() -> SecurityScheme {
    let about = "What POST /v1/tickets gives for a path: it reads that path and what is below it for an hour.";
    SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::with_description("ticket", about)))
}
