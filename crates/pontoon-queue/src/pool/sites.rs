//! Where fences are made, and the name that their errors show.

use std::{collections::HashMap, panic::Location, ptr, sync::Arc};

/// A place that makes fences: of [`Sites`] that gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SiteId(u32);

/// A label and the call it was given in.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) label: &'static str,
    pub(super) location: &'static Location<'static>,
    name: Arc<str>,
}

/// The places that have made fences, each found again without comparing text.
///
/// A place may have several addresses, one for each copy of the code; it is then here as often,
/// and reports put it together.
#[derive(Debug, Default)]
pub(super) struct Sites {
    sites: Vec<Site>,
    by_address: HashMap<Address, SiteId>,
    last: Option<(Address, SiteId)>,
}

/// Of the location, and of the label: its address and length.
type Address = (usize, usize, usize);

impl Sites {
    /// The place of `label` and `location`, and its name.
    pub(super) fn find(
        &mut self,
        label: &'static str,
        location: &'static Location<'static>,
    ) -> (SiteId, &Arc<str>) {
        let address = (ptr::from_ref(location).addr(), label.as_ptr().addr(), label.len());
        // Most often it is the one of the call before.
        let id = match self.last {
            Some((last, id)) if last == address => id,
            _ => *self.by_address.entry(address).or_insert_with(|| {
                let name = Arc::from(format!("{label} ({location})"));
                self.sites.push(Site { label, location, name });
                SiteId((self.sites.len() - 1) as u32)
            }),
        };
        self.last = Some((address, id));
        (id, &self.sites[id.0 as usize].name)
    }

    pub(super) fn site(&self, id: SiteId) -> &Site {
        &self.sites[id.0 as usize]
    }
}
