//! Who asks, and what they may do: what would change something cannot be tried, so the policies are
//! simulated where that is allowed.

use tokio::time::Instant;

use crate::targets::ecs::account::Account;
use crate::targets::ecs::error::{ApiError, between};
use crate::targets::ecs::session::Api;

/// Who asks: their ARN.
///
/// # Errors
/// Why nobody knows.
pub(super) async fn who(account: &Account, until: Instant) -> Result<String, ApiError> {
    let form = "Action=GetCallerIdentity&Version=2011-06-15";
    let answer = account.query(Api::Sts, "GetCallerIdentity", form, until).await?;
    Ok(between(&answer, "Arn").unwrap_or("somebody without a name").to_owned())
}

/// Whether `who` may do `action` with `resource` of `cluster`, both as ARN; absent if the simulation does not say.
///
/// # Errors
/// Why nobody knows, mostly that policies may not be simulated.
pub(super) async fn may(
    account: &Account,
    who: &str,
    action: &str,
    resource: &str,
    cluster: &str,
    until: Instant,
) -> Result<Option<bool>, ApiError> {
    // Nothing is denied to an account itself, and there is no policy to simulate.
    if who.ends_with(":root") {
        return Ok(Some(true));
    }
    let form = format!(
        "Action=SimulatePrincipalPolicy&Version=2010-05-08&PolicySourceArn={}\
         &ActionNames.member.1={}&ResourceArns.member.1={}\
         &ContextEntries.member.1.ContextKeyName=ecs%3Acluster\
         &ContextEntries.member.1.ContextKeyType=string\
         &ContextEntries.member.1.ContextKeyValues.member.1={}",
        encoded(&principal(who)),
        encoded(action),
        encoded(resource),
        encoded(cluster)
    );
    let answer = account.query(Api::Iam, "SimulatePrincipalPolicy", &form, until).await?;
    let allowed = between(&answer, "EvalDecision").map(|decision| decision == "allowed");
    // A condition on something that only a real request has.
    let open = between(&answer, "MissingContextValues").is_some_and(|it| it.contains("<member>"));
    Ok(allowed.filter(|allowed| *allowed || !open))
}

/// Whose policies count: of a session its role.
fn principal(who: &str) -> String {
    let role = who.split_once(":assumed-role/").and_then(|(account, rest)| {
        let role = rest.split('/').next()?;
        Some(format!("{}:role/{role}", account.replacen(":sts:", ":iam:", 1)))
    });
    role.unwrap_or_else(|| who.to_owned())
}

/// As a form has it.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_the_policies_of_its_role() {
        let session = "arn:aws:sts::123456789012:assumed-role/headcount/i-1";
        assert_eq!(principal(session), "arn:aws:iam::123456789012:role/headcount");
        let user = "arn:aws:iam::123456789012:user/me";
        assert_eq!(principal(user), user);
        assert_eq!(encoded("ecs:Update*/a"), "ecs%3AUpdate%2A%2Fa");
    }
}
