//! Requests whose JSON goes back as it came. A service that is scaled, or a container that is
//! copied, must not lose what this program has no name for.

use std::io::ErrorKind;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::brief::brief;
use crate::limits::{DETAIL_CHARS, ENGINE_BODY_BYTES, ENGINE_TIMEOUT};
use crate::targets::docker_engine::{Engine, EngineError};

pub use hyper::Method;

impl Engine {
    /// One request; `path` with its query, escaped. The answer as it is, null if it is empty.
    ///
    /// # Errors
    /// No answer in time, or another one than a success.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, EngineError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "docker")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(EngineError::not_understood)?;
        let answer = async {
            match self.host.split_once("://") {
                Some(("unix", path)) => {
                    let stream =
                        UnixStream::connect(path).await.map_err(|error| match error.kind() {
                            ErrorKind::NotFound => EngineError::no_socket(path),
                            _ => error.into(),
                        });
                    converse(stream?, request).await
                }
                Some((_, address)) => {
                    let address = address.trim_end_matches('/');
                    converse(TcpStream::connect(address).await?, request).await
                }
                None => Err(EngineError::not_understood(&self.host)),
            }
        };
        let answer = timeout(ENGINE_TIMEOUT, answer).await;
        answer.unwrap_or_else(|_| Err(EngineError::too_slow())).map_err(|error| self.named(error))
    }

    /// What the engine says of an image; `None` if it has no such image.
    ///
    /// # Errors
    /// No answer.
    pub async fn image(&self, name: &str) -> Result<Option<Value>, EngineError> {
        match self.ask(Method::GET, &format!("/images/{}/json", escaped(name)), None).await {
            Ok(image) => Ok(Some(image)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A text as a part of a path or of a query.
pub(in crate::targets) fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/:@".contains(&b);
    let escape = |b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(escape).collect()
}

async fn converse<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Value, EngineError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with `sender`.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ENGINE_BODY_BYTES).collect().await;
    let body = body.map_err(EngineError::not_understood)?.to_bytes();
    if !status.is_success() {
        return Err(EngineError::answered(status.as_u16(), message(&body)));
    }
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&body).map_err(EngineError::not_understood)
}

/// What an answer that is no success says.
fn message(body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).ok();
    let said = said.and_then(|json| json["message"].as_str().map(str::to_owned));
    let said = said.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    brief(said.trim(), DETAIL_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_escaped_for_a_path() {
        assert_eq!(escaped("quay.io/a/b:1@sha256:0"), "quay.io/a/b:1@sha256:0");
        assert_eq!(escaped("{\"a\":[\"b c\"]}?&#%"), "%7B%22a%22:%5B%22b%20c%22%5D%7D%3F%26%23%25");
    }

    #[test]
    fn what_the_engine_says_is_cut() {
        assert_eq!(message(b"{\"message\": \"no such service\\n\"}"), "no such service");
        assert_eq!(message(b"page not found\n"), "page not found");
        assert_eq!(message(&[b'x'; 9_999]).chars().count(), DETAIL_CHARS);
    }
}
