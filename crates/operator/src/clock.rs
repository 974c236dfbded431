//! What time it is for the API server: each of its answers says so.
//!
//! Between two answers it is counted by a clock that nobody can set, so that a jump of this machine's clock shows at once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hyper::header::DATE;
use hyper::{HeaderMap, Response};
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};

/// What the API server said last, and when that was heard.
static HEARD: Mutex<Option<(Timestamp, Instant)>> = Mutex::new(None);

/// Hears what time it is for the API server.
pub(crate) fn listen<B>(answer: Response<B>) -> Response<B> {
    hear(answer.headers());
    answer
}

fn hear(headers: &HeaderMap) {
    let said = headers.get(DATE).and_then(|date| date.to_str().ok());
    if let Some(time) = said.and_then(|date| rfc2822::parse(date).ok()) {
        *HEARD.lock().unwrap_or_else(PoisonError::into_inner) = Some((time.timestamp(), Instant::now()));
    }
}

/// When it is now for the API server. Nothing, when it never said.
pub(crate) fn api_server_time() -> Option<Timestamp> {
    let (time, heard) = (*HEARD.lock().unwrap_or_else(PoisonError::into_inner))?;
    time.checked_add(heard.elapsed()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_server_said_last_goes_on_by_itself() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Wed, 18 Nov 2026 03:04:05 GMT".parse().unwrap());
        hear(&headers);
        headers.insert(DATE, "soon".parse().unwrap());
        hear(&headers);
        let said: Timestamp = "2026-11-18T03:04:05Z".parse().unwrap();
        let passed = api_server_time().unwrap().duration_since(said);
        assert!(!passed.is_negative() && passed.as_secs() < 60, "{passed}");
    }
}
