//! Lists of artifacts that refer to a manifest. Registries return them in pages.
//!
//! The `Link` header gives the next page. A list is read to its end, within limits, and only from
//! the server of the first page, because the registry's credentials go with each request.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_cache::Digest;
use url::Url;

use crate::http::retry::retry;
use crate::http::site::Site;
use crate::oci::manifest::{self, Document, Entry, MAX_MANIFEST};
use crate::registry::Registry;
use crate::registry::endpoint::Endpoint;
use crate::registry::read::{RawManifest, first_of};
use crate::{RemoteError, Result};

const MAX_PAGES: usize = 64;
const MAX_LIST: usize = 2 * MAX_MANIFEST;

/// Returns the tag under which clients keep the list on registries without a referrers API.
pub fn fallback_tag(subject: &Digest) -> String {
    subject.to_string().replacen(':', "-", 1)
}

/// An artifact type, and its newest entry so far.
struct Newest<'t> {
    artifact_type: &'t str,
    entry: Option<Entry>,
}

impl Newest<'_> {
    /// Processes a page. Of entries with the same time, the last one wins.
    fn see(&mut self, page: &RawManifest) -> Result<()> {
        let entries = match manifest::parse(&page.bytes, None) {
            Ok(Document::Index(entries)) => entries,
            Ok(Document::Manifest(_)) => return Err(refused(page, "it is not an index")),
            Err(error) => return Err(refused(page, &error.to_string())),
        };
        for entry in entries {
            let is_ours = entry.artifact_type.as_deref() == Some(self.artifact_type);
            let known = self.entry.as_ref().and_then(|known| known.created.as_ref());
            if is_ours && (self.entry.is_none() || entry.created.as_ref() >= known) {
                self.entry = Some(entry);
            }
        }
        Ok(())
    }
}

fn refused(page: &RawManifest, reason: &str) -> RemoteError {
    RemoteError::Refused {
        place: page.place.clone(),
        reason: format!("the list of referrers: {reason}"),
    }
}

impl Registry {
    /// Returns the newest artifact of this type in the list of artifacts that refer to the manifest
    /// `subject`. Refuses a list that is malformed, does not end, or continues on another server.
    pub async fn newest_entry(
        &self,
        endpoints: &[Arc<Endpoint>],
        subject: Digest,
        artifact_type: &str,
    ) -> Result<Option<Entry>> {
        let is_listed = &AtomicBool::new(false);
        let listed = first_of(endpoints, |endpoint| async move {
            let url = endpoint.referrers(&subject, artifact_type)?;
            let first = self.page(endpoint, &url).await?;
            is_listed.store(true, Ordering::Relaxed);
            self.newest_of_pages(endpoint, (url, first), artifact_type)
                .await
        });
        match listed.await {
            // Registries without a referrers API do not have this address.
            Err(RemoteError::NotFound { .. } | RemoteError::Refused { .. })
                if !is_listed.load(Ordering::Relaxed) => {}
            outcome => return outcome,
        }
        let tag = fallback_tag(&subject);
        let mut newest = Newest {
            artifact_type,
            entry: None,
        };
        match self.manifest(endpoints, &tag, None).await {
            Ok(listed) => newest.see(&listed)?,
            Err(RemoteError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(newest.entry)
    }

    /// Reads the pages of a list after the first one.
    async fn newest_of_pages(
        &self,
        endpoint: &Endpoint,
        (url, first): (Url, RawManifest),
        artifact_type: &str,
    ) -> Result<Option<Entry>> {
        let mut newest = Newest {
            artifact_type,
            entry: None,
        };
        let (mut page, mut bytes) = (first, 0);
        let mut seen = HashSet::from([url]);
        loop {
            newest.see(&page)?;
            bytes += page.bytes.len();
            let Some(next) = next_page(endpoint, &page)? else {
                return Ok(newest.entry);
            };
            if seen.len() >= MAX_PAGES || bytes > MAX_LIST {
                let reason = format!("it has more than {MAX_PAGES} pages or {MAX_LIST} bytes");
                return Err(refused(&page, &reason));
            }
            if !seen.insert(next.clone()) {
                return Err(refused(&page, "its pages refer back to an earlier page"));
            }
            page = self.page(endpoint, &next).await?;
        }
    }

    async fn page(&self, endpoint: &Endpoint, url: &Url) -> Result<RawManifest> {
        retry(self.retries(), || {
            self.document_at(endpoint, url.clone(), None)
        })
        .await
    }
}

fn next_page(endpoint: &Endpoint, page: &RawManifest) -> Result<Option<Url>> {
    let Some(next) = page.next.as_deref() else {
        return Ok(None);
    };
    let url = page.url.join(next);
    let mut url = url.map_err(|_| refused(page, "its next page has no URL"))?;
    // Addresses that differ only in the fragment are the same page.
    url.set_fragment(None);
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    if has_credentials || Site::of(&url).as_ref() != Some(&endpoint.site) {
        return Err(refused(page, "its next page is at another server"));
    }
    Ok(Some(url))
}
