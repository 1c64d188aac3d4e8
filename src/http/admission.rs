//! What a request must find before its handler runs: a body that is not encoded, places of its address and its token, and room
//! for its body.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body;

use super::app::{App, SharedApp};
use super::body_budget::BodyPermit;
use super::error::ApiError;
use super::peers::RequestPlaces;

/// Admits a request that the guard has let in. Its places are kept until its answer was sent to its end, or dropped.
pub(super) async fn admit(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    let places = match check(&app, &request) {
        Ok(places) => places,
        Err(refusal) => return refusal.into_response(),
    };
    let response = match request.body().is_end_stream() {
        true => next.run(request).await,
        false => BodyPermit::new(&app.bodies).during(next.run(request)).await,
    };
    places.kept_by(response)
}

fn check(app: &App, request: &Request) -> Result<RequestPlaces, ApiError> {
    if is_encoded(request.headers()) {
        return Err(ApiError::unsupported_encoding());
    }
    Ok(app.client_places.of_request(request, &app.proxies())?)
}

/// Whether `Content-Encoding` names anything but `identity`.
fn is_encoded(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut codings = given.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.any(|coding| {
        let coding = coding.trim_ascii();
        !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
    })
}
