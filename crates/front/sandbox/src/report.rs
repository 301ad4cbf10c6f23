//! The measures in force in a sandbox.

/// How far a measure is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Fully in force; the text describes it.
    InForce(String),
    /// Partly in force; the text says which part.
    Partly(String),
    /// Not in force; the text is the reason.
    Missing(String),
}

impl State {
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::InForce(text) | Self::Partly(text) | Self::Missing(text) => text,
        }
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::InForce(_) => "on",
            Self::Partly(_) => "partly",
            Self::Missing(_) => "missing",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Such as `landlock`.
    pub name: &'static str,
    pub state: State,
}

/// All measures in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    measures: Vec<Measure>,
}

impl Report {
    pub(crate) fn put(&mut self, name: &'static str, state: State) {
        self.measures.push(Measure { name, state });
    }

    #[must_use]
    pub fn measures(&self) -> &[Measure] {
        &self.measures
    }

    #[must_use]
    pub fn is_whole(&self) -> bool {
        let is_on = |measure: &Measure| matches!(measure.state, State::InForce(_));
        self.measures.iter().all(is_on)
    }

    pub(crate) fn log(&self) {
        for Measure { name, state } in &self.measures {
            let text = state.text();
            match state {
                State::InForce(_) => tracing::debug!("sandbox: {name}: {text}"),
                State::Partly(_) => tracing::info!("sandbox: {name} in part: {text}"),
                State::Missing(_) => tracing::info!("sandbox: no {name}: {text}"),
            }
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, Measure { name, state }) in self.measures.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            match state {
                State::InForce(text) => write!(f, "{comma}{name} {text}")?,
                State::Partly(text) => write!(f, "{comma}{name} in part ({text})")?,
                State::Missing(text) => write!(f, "{comma}no {name} ({text})")?,
            }
        }
        Ok(())
    }
}
