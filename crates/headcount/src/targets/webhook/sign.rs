//! Signatures as Standard Webhooks 1.0 has them (standardwebhooks.com), so that a receiver can
//! check them with a library of its language: HMAC-SHA256 over `id.timestamp.body`, in base64.

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::secret::Secret;

/// What the key of a secret is written after if it is base64; any other secret is itself the key.
const PREFIX: &str = "whsec_";

/// The value of the header `webhook-signature`. `seconds` is the Unix time in `webhook-timestamp`.
///
/// # Errors
/// The secret starts as a base64 one but is none.
pub(super) fn signature(
    secret: &Secret,
    id: &str,
    seconds: i64,
    body: &[u8],
) -> Result<String, String> {
    let key = hmac::Key::new(HMAC_SHA256, &key(secret)?);
    let content = [format!("{id}.{seconds}.").as_bytes(), body].concat();
    Ok(format!("v1,{}", STANDARD.encode(hmac::sign(&key, &content))))
}

/// The key that a secret holds.
///
/// # Errors
/// It starts as a base64 one but is none.
pub(super) fn key(secret: &Secret) -> Result<Vec<u8>, String> {
    match secret.expose().strip_prefix(PREFIX) {
        None => Ok(secret.expose().as_bytes().to_vec()),
        Some(encoded) => STANDARD
            .decode(encoded)
            .ok()
            .filter(|key| !key.is_empty())
            .ok_or_else(|| format!("what follows {PREFIX} is no base64; copy it whole")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_as_the_example_of_the_specification() {
        let secret = Secret::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let (id, seconds) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330);
        let signed = signature(&secret, id, seconds, br#"{"test": 2432232314}"#);
        assert_eq!(signed.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_plain_secret_is_its_own_key() {
        assert_eq!(key(&Secret::from("hunter2")).unwrap(), b"hunter2");
        assert_eq!(key(&Secret::from("whsec_aGk=")).unwrap(), b"hi");
        for wrong in ["whsec_", "whsec_a", "whsec_!!"] {
            let said = key(&Secret::from(wrong)).unwrap_err();
            assert_eq!(said, "what follows whsec_ is no base64; copy it whole", "{wrong}");
        }
    }
}
