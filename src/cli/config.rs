//! The file that configures runners: which one it is, and what is wrong with it.

use std::path::{Path, PathBuf};

use lastword::http::ServerSettings;
use lastword::run::Config;

use super::failure::Failure;
use super::{Context, output};

/// Where the configuration is looked for in a data directory, if no other place is named.
const FILE_NAME: &str = "_lastword.toml";

/// The text of the configuration, and where it is; nothing if there is none and none was named.
fn read(context: &Context, named: Option<&Path>) -> Result<(PathBuf, String), Failure> {
    let path = named.map_or_else(|| context.data.join(FILE_NAME), PathBuf::from);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(cause) if named.is_none() && cause.kind() == std::io::ErrorKind::NotFound => Ok((path, String::new())),
        Err(cause) => Err(Failure::Usage(format!("could not read the configuration {}: {cause}", path.display()))),
    }
}

fn wrong(path: &Path, cause: &dyn std::error::Error) -> Failure {
    Failure::Usage(format!("the configuration {} is wrong: {cause}", path.display()))
}

/// The runners and options that are configured. Without a file there is the demo.
pub(super) fn load(context: &Context, named: Option<&Path>) -> Result<Config, Failure> {
    let (path, text) = read(context, named)?;
    Config::parse(&text).map_err(|cause| wrong(&path, &cause))
}

/// What the same file says about a server.
pub(super) fn load_server(context: &Context, named: Option<&Path>) -> Result<ServerSettings, Failure> {
    let (path, text) = read(context, named)?;
    ServerSettings::parse(&text).map_err(|cause| wrong(&path, &cause))
}

/// The text of a file that holds secrets. Others who may read it are told of.
pub(super) fn read_private(path: &Path) -> Result<String, Failure> {
    let broken =
        |cause: std::io::Error| Failure::Usage(format!("could not read the token file {}: {cause}", path.display()));
    let text = std::fs::read_to_string(path).map_err(broken)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path).map_err(broken)?.permissions().mode();
        if mode & 0o077 != 0 {
            output::aside(&format!("others may read the token file {}: chmod 600 keeps them out", path.display()));
        }
    }
    Ok(text)
}
