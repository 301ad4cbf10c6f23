//! The outcome of a run of a target, from the lines that libFuzzer prints.

/// The words of libFuzzer before the number of inputs that it ran.
const EXECUTIONS: &str = "stat::number_of_executed_units:";
/// Its first word about a finding of its own: a crash, a timeout, an excess of memory.
const ERROR: &str = "ERROR: ";
/// Before the file that holds the input.
const ARTIFACT: &str = "Test unit written to ";

/// The outcome of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Inputs that were run.
    pub executions: u64,
    /// The finding: the place of a panic, or libFuzzer's words.
    what: Option<String>,
    /// The file that holds the input.
    artifact: Option<String>,
    /// Whether the program failed.
    failed: bool,
}

impl Outcome {
    /// Takes note of a line.
    pub fn note(&mut self, line: &str) {
        if let Some((_, count)) = line.split_once(EXECUTIONS) {
            self.executions = count.trim().parse().unwrap_or(self.executions);
        } else if let Some((_, path)) = line.split_once(ARTIFACT) {
            self.artifact = Some(path.trim().to_string());
        } else if self.what.is_none() {
            // A panic comes first and says more than the signal that follows it.
            let panic = line.split_once(" panicked at ").map(|(_, place)| place);
            let what = panic.or_else(|| line.split_once(ERROR).map(|(_, what)| what));
            self.what = what.map(|what| what.trim_end_matches(':').trim().to_string());
        }
    }

    /// Takes note of the end of the program.
    pub fn ended(&mut self, success: bool) {
        self.failed = !success;
    }

    /// Returns whether nothing was found.
    pub fn is_sound(&self) -> bool {
        !self.failed && self.artifact.is_none()
    }

    /// Returns the findings, for people.
    pub fn findings(&self) -> String {
        if self.is_sound() {
            return "none".to_string();
        }
        let what = self.what.as_deref().unwrap_or("the program failed");
        match &self.artifact {
            Some(artifact) => format!("{what}; {artifact}"),
            None => what.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str, success: bool) -> Outcome {
        let mut outcome = Outcome::default();
        text.lines().for_each(|line| outcome.note(line));
        outcome.ended(success);
        outcome
    }

    #[test]
    fn a_run_without_a_finding() {
        let text = "INFO: seed corpus: files: 8\n\
            #65536\tpulse  cov: 402 ft: 988 corp: 70/3Kb exec/s: 32768 rss: 92Mb\n\
            Done 100231 runs in 2 second(s)\n\
            stat::number_of_executed_units: 100231\n\
            stat::average_exec_per_sec:     50115\n";
        let outcome = outcome(text, true);
        assert!(outcome.is_sound());
        assert_eq!(outcome.executions, 100_231);
        assert_eq!(outcome.findings(), "none");
    }

    #[test]
    fn a_panic_is_named_by_its_place() {
        let text = "thread '<unnamed>' (7) panicked at crates/a/src/b.rs:20:13:\n\
            ==7== ERROR: libFuzzer: deadly signal\n\
            artifact_prefix='fuzz/artifacts/a/'; Test unit written to fuzz/artifacts/a/crash-1\n\
            stat::number_of_executed_units: 12\n";
        let outcome = outcome(text, false);
        assert!(!outcome.is_sound());
        assert_eq!(outcome.executions, 12);
        assert_eq!(
            outcome.findings(),
            "crates/a/src/b.rs:20:13; fuzz/artifacts/a/crash-1"
        );
    }

    #[test]
    fn a_timeout_is_named_as_libfuzzer_does() {
        let text = "==7== ERROR: libFuzzer: timeout after 6 seconds\n\
            artifact_prefix='a/'; Test unit written to a/timeout-1\n";
        let outcome = outcome(text, false);
        assert_eq!(
            outcome.findings(),
            "libFuzzer: timeout after 6 seconds; a/timeout-1"
        );
    }

    #[test]
    fn a_program_that_fails_without_a_word_is_a_finding() {
        let outcome = outcome("error: could not compile\n", false);
        assert!(!outcome.is_sound());
        assert_eq!(outcome.findings(), "the program failed");
    }
}
