//! What `headcount check` finds out about a webhook, without an order.

use std::net::IpAddr;

use reqwest::{Method, StatusCode, Url};

use super::call::{Answer, Fault, shown};
use super::{Webhook, new_id, sign};
use crate::finding::Finding;
use crate::limits::OUTPUT_BYTES;
use crate::targets::Target;

const ABOUT: &str = "target";

impl Webhook {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let mut found = vec![self.signed(), self.reached().await];
        found.extend(is_open(&self.url).then(|| {
            let what = format!("{} is not encrypted on its way", shown(&self.url));
            Finding::warning(ABOUT, what, "use an https:// address in `url`")
        }));
        let asks = self.status.is_some();
        found.push(match self.status().await {
            Ok(seen) => {
                let there = match seen.reading.capacity() {
                    1 => "1 worker".to_owned(),
                    n => format!("{n} workers"),
                };
                match asks {
                    true => Finding::good(ABOUT, format!("status_url says {there}")),
                    false => Finding::warning(
                        ABOUT,
                        format!("nobody is asked how many workers there are; assumed: {there}"),
                        "give a `status_url` that answers with the number",
                    ),
                }
            }
            Err(missing) => Finding::problem(
                ABOUT,
                missing.to_string(),
                "get it by hand, as with curl, and correct what it says",
            ),
        });
        found
    }

    fn signed(&self) -> Finding {
        match self.caller.secret() {
            Ok(Some(secret)) => match sign::key(&secret) {
                Ok(_) => Finding::good(ABOUT, "requests are signed"),
                Err(what) => Finding::problem(ABOUT, what, "correct the secret"),
            },
            Ok(None) => Finding::warning(
                ABOUT,
                "requests are not signed: the server cannot tell who sends them",
                "set `secret_file`, and let the server check `webhook-signature`",
            ),
            Err(error) => Finding::problem(ABOUT, format!("{error:#}"), "correct `secret_file`"),
        }
    }

    /// Any answer shows that the server is there: HEAD changes nothing, and may not be allowed.
    async fn reached(&self) -> Finding {
        let (url, place) = (&self.url, shown(&self.url));
        let id = new_id();
        let asked = self.caller.once(Method::HEAD, url, &id, b"", self.limit, OUTPUT_BYTES);
        match asked.await {
            // Simple servers answer so to whatever they were not made for.
            Ok(Answer { status: StatusCode::NOT_IMPLEMENTED, .. }) => {
                Finding::good(ABOUT, format!("{place} answers"))
            }
            Ok(Answer { status, .. }) if status.is_server_error() => Finding::warning(
                ABOUT,
                format!("{place} answers {status} to HEAD"),
                "look into the server's log",
            ),
            Ok(answer) if answer.status.is_redirection() => Finding::problem(
                ABOUT,
                format!("{place} {}, which is not followed", answer.said()),
                "set `url` to where it really is",
            ),
            Ok(_) => Finding::good(ABOUT, format!("{place} answers")),
            Err(fault @ Fault::Unusable(_)) => {
                Finding::problem(ABOUT, format!("{place}: {fault}"), "correct the configuration")
            }
            Err(fault) => Finding::problem(
                ABOUT,
                format!("{place}: {fault}"),
                "start the server or correct `url`; behind TLS also `ca_file`",
            ),
        }
    }
}

/// Whether what is sent can be read on its way.
fn is_open(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse::<IpAddr>().map_or(host == "localhost", |ip| ip.is_loopback());
    url.scheme() == "http" && !loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_be_told_in_the_open() {
        for (url, open) in [
            ("https://ops.example/", false),
            ("http://ops.example/", true),
            ("http://10.0.0.1/", true),
            ("http://127.0.0.1:80/", false),
            ("http://[::1]/", false),
            ("http://localhost/", false),
        ] {
            assert_eq!(is_open(&Url::parse(url).unwrap()), open, "{url}");
        }
    }
}
