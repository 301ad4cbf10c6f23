//! A bench that was run: its records, and how it is printed.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::host::Host;
use super::record::{BenchRecord, Measured, Target};

/// A bench that was run.
pub struct BenchOutcome {
    /// The machine and the programs.
    pub host: Host,
    /// The tree or the images, for people.
    pub tree: String,
    /// Facts that are in no record, for programs: an object.
    pub facts: Value,
    /// The records.
    pub records: Vec<BenchRecord>,
    /// The tables of the records, for people.
    pub text: String,
}

impl BenchOutcome {
    /// Prints to standard output.
    pub fn print(&self, as_json: bool) -> Result<()> {
        match as_json {
            true => println!("{:#}", self.json()?),
            false => println!("{}", self.text),
        }
        Ok(())
    }

    /// Fails where a run did, or where drivers found different data.
    pub fn verdict(&self) -> Result<()> {
        let measured = self.records.iter().flat_map(contenders);
        let failures: usize = measured.map(|of| of.failures.len()).sum();
        ensure!(
            failures == 0,
            "runs failed, or found different data: the records say which"
        );
        let differ = self.records.iter().filter(|record| {
            let mut others = record.others.iter();
            others.any(|against| against.target == Target::OtherData)
        });
        let differ: Vec<&str> = differ.map(|record| record.work.as_str()).collect();
        ensure!(
            differ.is_empty(),
            "other data was found than by others: {}",
            differ.join(", ")
        );
        Ok(())
    }

    /// Returns all of it for programs.
    pub fn json(&self) -> Result<Value> {
        let mut json = json!({
            "host": self.host.json(),
            "tree": self.tree,
            "records": serde_json::to_value(&self.records)?,
        });
        for (name, fact) in self.facts.as_object().into_iter().flatten() {
            json[name] = fact.clone();
        }
        Ok(json)
    }
}

fn contenders(record: &BenchRecord) -> impl Iterator<Item = &Measured> {
    let others = record.others.iter().map(|against| &against.theirs);
    std::iter::once(&record.ours).chain(others)
}
