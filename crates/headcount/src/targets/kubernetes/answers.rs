//! What every answer of the API server goes through before anything reads it: its size has a limit,
//! and an error means what its HTTP status says, whatever its body says.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Response;
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use serde_json::{Value, json};
use tower::BoxError;
use tower::util::AndThenLayer;

use crate::limits::KUBERNETES_BYTES;

/// An answer was given up.
#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {} MiB", KUBERNETES_BYTES >> 20)]
pub(super) struct TooLarge;

/// A client whose answers go through here.
///
/// # Errors
/// A certificate or a key that is unusable, or a proxy of an unknown kind.
pub(super) fn client(config: Config) -> kube::Result<Client> {
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&AndThenLayer::new(whole)).build())
}

/// The answer with all of its body.
async fn whole<B>(answer: Response<B>) -> Result<Response<Body>, BoxError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (mut head, body) = answer.into_parts();
    let body = match Limited::new(body, KUBERNETES_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(TooLarge.into()),
        Err(error) => return Err(error),
    };
    let code = head.status;
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(Response::from_parts(head, Body::from(body)));
    }
    // The length may be another one now.
    head.headers.clear();
    let status = status(code.as_u16(), &body).to_string();
    Ok(Response::from_parts(head, Body::from(status.into_bytes())))
}

/// The error as Kubernetes writes it, with this code.
fn status(code: u16, body: &[u8]) -> Value {
    let said = serde_json::from_slice::<Value>(body);
    let (message, reason) = match &said {
        Ok(said) => (said["message"].as_str().unwrap_or_default(), said["reason"].as_str()),
        Err(_) => (str::from_utf8(body).unwrap_or_default().trim(), None),
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason.unwrap_or_default(), "code": code,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_that_of_the_answer() {
        let whole = json!({ "kind": "Status", "message": "m", "reason": "Conflict", "code": 409 });
        let table = [
            (json!({}).to_string(), "", ""),
            (json!({ "code": 200, "message": 5 }).to_string(), "", ""),
            (json!(null).to_string(), "", ""),
            (whole.to_string(), "m", "Conflict"),
            ("no such page\n".to_owned(), "no such page", ""),
        ];
        for (body, message, reason) in table {
            let status = status(401, body.as_bytes());
            assert_eq!(status["code"], 401, "{body}");
            assert_eq!((&status["message"], &status["reason"]), (&json!(message), &json!(reason)));
        }
        assert_eq!(status(503, b"\xff")["message"], "");
    }
}
