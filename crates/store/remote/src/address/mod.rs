//! Names of remote images.

pub mod image_name;
pub mod reference;

use url::Url;

/// Returns the address for messages, without user, password, query and fragment.
#[must_use]
pub fn place_of(url: &Url) -> String {
    let mut url = url.clone();
    // Both calls fail only for addresses without a host, which have no credentials either.
    let _no_host = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}
