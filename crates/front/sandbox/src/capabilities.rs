//! Drops capabilities.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::State;

pub fn keep_only(wanted: CapabilitySet) -> State {
    match drop_others(wanted) {
        Ok(kept) if kept.is_empty() => State::InForce("none".into()),
        Ok(kept) => State::InForce(names(kept)),
        Err(error) => State::Missing(error.to_string()),
    }
}

fn drop_others(wanted: CapabilitySet) -> Result<CapabilitySet, Errno> {
    let had = capabilities(None)?.permitted;
    let kept = had & wanted;
    // Changing the bounding set needs CAP_SETPCAP.
    clear_ambient_capability_set()?;
    if had.contains(CapabilitySet::SETPCAP) {
        for bit in (0..u64::BITS).map(|n| 1 << n) {
            let one = CapabilitySet::from_bits_retain(bit);
            if kept.contains(one) {
                continue;
            }
            // The number exceeds the last capability of this kernel.
            if remove_capability_from_bounding_set(one) == Err(Errno::INVAL) {
                break;
            }
        }
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(kept)
}

fn names(kept: CapabilitySet) -> String {
    let names = kept.iter_names().map(|(name, _)| name.to_lowercase());
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_listed_by_name() {
        let kept = CapabilitySet::CHOWN | CapabilitySet::MKNOD;
        assert_eq!(names(kept), "chown, mknod");
    }
}
