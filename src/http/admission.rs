//! What a request must find before its handler runs: room for its body.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http_body::Body;

use super::app::SharedApp;
use super::body_budget::BodyPermit;

/// Admits a request that the guard has let in.
pub(super) async fn admit(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    match request.body().is_end_stream() {
        true => next.run(request).await,
        false => BodyPermit::new(&app.bodies).during(next.run(request)).await,
    }
}
