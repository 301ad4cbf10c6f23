//! How the user's object store is reached: variables, then the profile.
//!
//! What is read is read anew each time: when an image is opened, and when SIGHUP asks for it.

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use super::aws_profile::Profile;

/// Variables by which keys come without any profile.
const WITHOUT_PROFILE: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// Variables that name the endpoint, the one that counts first.
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// The settings of the user's environment and profile.
pub struct S3Settings;

impl S3Settings {
    /// The endpoint; nothing where it is Amazon's.
    #[must_use]
    pub fn endpoint_of_user() -> Option<String> {
        ENDPOINTS
            .iter()
            .find_map(|name| set(name))
            .or_else(|| profile().ok()??.endpoint)
    }

    /// A builder that knows region, endpoint and credentials.
    ///
    /// # Errors
    /// Why the profile cannot be used.
    pub fn builder() -> Result<AmazonS3Builder, String> {
        let mut builder = AmazonS3Builder::from_env();
        let of_variables = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId);
        let Some(profile) = profile()? else {
            return Ok(builder);
        };
        if let Some(region) = profile.region
            && builder
                .get_config_value(&AmazonS3ConfigKey::Region)
                .is_none()
        {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = profile.endpoint
            && ENDPOINTS.iter().all(|name| set(name).is_none())
        {
            builder = builder.with_endpoint(endpoint);
        }
        let is_given = WITHOUT_PROFILE.iter().any(|name| set(name).is_some());
        if of_variables.is_some() || is_given {
            return Ok(builder);
        }
        if let Some((key, secret)) = profile.keys {
            builder = builder
                .with_access_key_id(key)
                .with_secret_access_key(secret);
            if let Some(token) = profile.token {
                builder = builder.with_token(token);
            }
        } else if let Some(setting) = profile.elsewhere {
            return Err(format!(
                "the keys of this profile come by {setting}, which is not understood; \
                 `aws configure export-credentials --format env` makes variables of them"
            ));
        }
        Ok(builder)
    }
}

/// The user's profile. One that was asked for by name must be there.
fn profile() -> Result<Option<Profile>, String> {
    let asked = set("AWS_PROFILE").or_else(|| set("AWS_DEFAULT_PROFILE"));
    match (
        Profile::of_user(asked.as_deref().unwrap_or("default")),
        asked,
    ) {
        (None, Some(name)) => Err(format!("there is no profile {name:?} in ~/.aws")),
        (profile, _) => Ok(profile),
    }
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
