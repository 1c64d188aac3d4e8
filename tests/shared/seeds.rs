//! Where property tests keep the seeds of their failures.
//!
//! The seeds in `fixtures/regressions/<suite>.txt` are committed, and are tried first. A new failure goes to
//! `target/regressions/<suite>.txt`, which no test reads; the fix moves its line to the committed file. So a test that
//! failed for another reason, such as a safeguard that was taken out on purpose, leaves no mark in the repository.

use std::any::Any;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence, PersistedSeed};

/// A configuration whose failures are kept as above.
pub(crate) fn config(suite: &'static str) -> ProptestConfig {
    let seeds = Seeds { suite };
    ProptestConfig { failure_persistence: Some(Box::new(seeds)), ..ProptestConfig::default() }
}

#[derive(Debug, Clone, PartialEq)]
struct Seeds {
    suite: &'static str,
}

impl Seeds {
    fn file(&self, folder: &str) -> FileFailurePersistence {
        let name = format!("{folder}/regressions/{}.txt", self.suite);
        // It wants a name for the whole life of the process; there are a handful of suites.
        FileFailurePersistence::Direct(name.leak())
    }
}

impl FailurePersistence for Seeds {
    fn load_persisted_failures2(&self, source_file: Option<&'static str>) -> Vec<PersistedSeed> {
        self.file("fixtures").load_persisted_failures2(source_file)
    }

    fn save_persisted_failure2(
        &mut self,
        source_file: Option<&'static str>,
        seed: PersistedSeed,
        shrunken_value: &dyn std::fmt::Debug,
    ) {
        self.file("target").save_persisted_failure2(source_file, seed, shrunken_value);
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(self.clone())
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().downcast_ref::<Seeds>().is_some_and(|other| other == self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
