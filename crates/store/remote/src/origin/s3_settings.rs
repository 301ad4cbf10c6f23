//! Settings of the user's object store: from variables, then from the profile.
//!
//! They are read each time an image is opened, and again on SIGHUP.

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::origin::aws_profile::Profile;

/// Variables that provide keys without a profile.
const WITHOUT_PROFILE: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// Variables that name the endpoint, in order of precedence.
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

pub struct S3Settings;

impl S3Settings {
    /// Returns the endpoint, or `None` for Amazon's.
    #[must_use]
    pub fn endpoint_of_user() -> Option<String> {
        ENDPOINTS
            .iter()
            .find_map(|name| set(name))
            .or_else(|| profile().ok()??.endpoint)
    }

    /// Returns a builder with region, endpoint and credentials. Fails if the profile cannot be
    /// used.
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
                "this profile gets its keys by {setting}, which forerun does not support; `aws configure export-credentials --format env` prints them as variables"
            ));
        }
        Ok(builder)
    }
}

/// Reads the user's profile. A profile that the user has named must exist.
fn profile() -> Result<Option<Profile>, String> {
    let asked = set("AWS_PROFILE").or_else(|| set("AWS_DEFAULT_PROFILE"));
    match (
        Profile::of_user(asked.as_deref().unwrap_or("default")),
        asked,
    ) {
        (None, Some(name)) => Err(format!("~/.aws has no profile {name:?}")),
        (profile, _) => Ok(profile),
    }
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
