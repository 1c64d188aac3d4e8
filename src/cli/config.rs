//! The file that configures runners: which one it is, and what is wrong with it.

use std::path::{Path, PathBuf};

use lastword::run::Config;

use super::Context;
use super::failure::Failure;

/// Where the configuration is looked for in a data directory, if no other place is named.
const FILE_NAME: &str = "_lastword.toml";

/// The runners and options that are configured. Without a file there is the demo.
pub(super) fn load(context: &Context, named: Option<&Path>) -> Result<Config, Failure> {
    let path = named.map_or_else(|| context.data.join(FILE_NAME), PathBuf::from);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(cause) if named.is_none() && cause.kind() == std::io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(cause) => {
            return Err(Failure::Usage(format!("could not read the configuration {}: {cause}", path.display())));
        }
    };
    Config::parse(&text)
        .map_err(|cause| Failure::Usage(format!("the configuration {} is wrong: {cause}", path.display())))
}
