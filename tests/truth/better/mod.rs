//! What must hold where the reference program loses or misreports something: one check a scenario, by the scenario's name,
//! written from its `better` text. A scenario in these tables is not compared with what was recorded.

mod core;
mod first_repair;
mod journals;
mod markers;
mod retries;
mod rows;
mod store;
mod told;

pub(crate) use told::Told;

pub(crate) type Check = fn(&mut Told);

pub(crate) fn check_of(scenario: &str) -> Option<Check> {
    checks().find(|(name, _)| *name == scenario).map(|(_, check)| check)
}

pub(crate) fn checks() -> impl Iterator<Item = (&'static str, Check)> {
    let tables: [&[(&str, Check)]; 6] =
        [journals::CHECKS, first_repair::CHECKS, core::CHECKS, markers::CHECKS, retries::CHECKS, store::CHECKS];
    tables.into_iter().flatten().copied()
}
