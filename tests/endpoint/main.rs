//! The runner for endpoints that speak OpenAI's chat completions, against a server on this machine that misbehaves as
//! it is told. Real sockets and real time: budgets are small where somebody is silent, and generous everywhere else.

mod attachments;
#[path = "../run/house.rs"]
#[allow(dead_code, reason = "not everything in the house is needed here")]
mod base;
mod broken;
mod cut;
mod dialects;
mod ending;
mod history;
mod house;
mod refused;
mod server;
mod silence;
mod stop;
mod talk;
mod words;
