//! All that was measured, and the remarks on all of it.

use super::model::DemoPart;

/// The results of a run.
pub struct DemoReport {
    /// The parts that were asked for.
    pub parts: Vec<DemoPart>,
    /// The reason why nothing was mounted, where that is so.
    pub no_mount: Option<String>,
    /// Whether the caches of the whole machine were dropped before each measurement.
    pub dropped_all: bool,
    /// Seconds that the run took.
    pub seconds: f64,
}

impl DemoReport {
    /// Returns the remarks.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![match self.dropped_all {
            true => "All caches of the machine were dropped before each measurement.".to_string(),
            false => "The caches of the images were dropped before each measurement.".to_string(),
        }];
        notes.push(format!("The demo took {:.0} s.", self.seconds));
        notes
    }
}
