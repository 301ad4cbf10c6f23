//! Code that all protocols share: the client, rules for redirects and proxies, and checks of
//! answers.

pub mod client;
pub mod link;
pub mod local_addresses;
pub mod parameter;
mod proxies;
pub mod redirect;
pub mod response;
pub mod retry;
pub mod site;
