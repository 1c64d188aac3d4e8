//! The conversation as a model is shown it: valid for every provider, whatever the session and wherever it was cut.

mod anything;
mod cuts;
mod provider;
mod rows;
#[path = "../shared/seeds.rs"]
mod seeds;
mod session;
mod told;
mod tools;
mod whole;
